locals {
  # Which instances keep which secret in which file.
  instance_secrets = {
    consul = merge(
      { for name in ["edge", "regionctl", "dns", "nodes"] : "/etc/weir/tokens/${name}" => { arn = aws_secretsmanager_secret.this["${name}-token"].arn, group = "root" } },
      {
        "/etc/consul.d/ca.pem"          = { arn = "${local.fleet_secret}/ca", group = "consul", reload = "weir-consul.service" }
        "/etc/consul.d/gossip.json"     = { arn = "${local.fleet_secret}/gossip", group = "consul" }
        "/etc/weir/ca.key"              = { arn = "${local.fleet_secret}/ca-key", group = "root" }
        "/etc/consul.d/wan.json"        = { arn = aws_secretsmanager_secret.this["consul-wan"].arn, group = "consul" }
        "/etc/consul.d/management.json" = { arn = aws_secretsmanager_secret.this["management-token"].arn, group = "consul" }
        "/etc/consul.d/agent.json"      = { arn = aws_secretsmanager_secret.this["agent-token"].arn, group = "consul" }
      },
    )
    edge = merge({
      "/etc/consul.d/ca.pem"      = { arn = "${local.fleet_secret}/ca", group = "consul", reload = "weir-consul.service" }
      "/etc/consul.d/gossip.json" = { arn = "${local.fleet_secret}/gossip", group = "consul" }
      "/etc/weir/admin-token"     = { arn = aws_secretsmanager_secret.this["admin-token"].arn, group = "weir" }
      "/etc/weir/shedder-secret"  = { arn = "${local.fleet_secret}/shedder", group = "weir" }
      "/etc/weir/redis-password"  = { arn = aws_secretsmanager_secret.redis.arn, group = "weir" }
      }, !local.edge_tls ? {} : {
      "/etc/weir/public.pem" = { arn = var.certificate_arn, group = "weir", reload = "weir-edge.service" }
    })
  }
  agent = { addr = "http://127.0.0.1:8500" }
}

module "consul_user_data" {
  source = "../cloud-init"

  release = local.release
  logs    = local.logs
  secrets = local.instance_secrets.consul
  start   = ["weir-certificate.service", "weir-certificate.timer", "weir-consul.service", "weir-consul-acl.timer", "weir-node-tokens.timer", "weir-snapshot.timer", "weir-backup.timer", "weir-joined.service"]

  units = { for name in ["consul.service", "certificate.service", "certificate.timer", "consul-acl.service", "consul-acl.timer", "node-tokens.service", "node-tokens.timer", "snapshot.service", "snapshot.timer", "backup.service", "backup.timer", "joined.service"] : "weir-${name}" => file("${path.module}/files/weir-${name}") }

  files = merge(
    {
      "/etc/consul.d/consul.json" = {
        content = templatefile("${path.module}/templates/consul-server.json.tftpl", {
          datacenter = var.region
          servers    = var.consul.count
          retry_join = local.retry_join
        })
      }
      "/usr/local/lib/weir/certify"     = { content = file("${path.module}/files/certify.sh"), mode = "0755" }
      "/usr/local/lib/weir/certificate" = { content = file("${path.module}/files/certificate.sh"), mode = "0755" }
      "/etc/weir/certificate.env"       = { content = "SERVER_NAME=${local.consul_server_name}\n" }
      "/usr/local/lib/weir/consul-acl"  = { content = file("${path.module}/files/consul-acl.sh"), mode = "0755" }
      "/usr/local/lib/weir/snapshot"    = { content = file("${path.module}/files/snapshot.sh"), mode = "0755" }
      "/usr/local/lib/weir/node-tokens" = { content = file("${path.module}/files/node-tokens.sh"), mode = "0755" }
      "/etc/weir/node-tokens.env"       = { content = "NODES_BUCKET=${aws_s3_bucket.nodes.bucket}\nNODES_REGION=${local.aws_region}\nNODES_ROLE=${aws_iam_role.instance["edge"].unique_id}\nNODES_GROUP=${local.name}-edge\nNODES_DATACENTER=${var.region}\nNODES_ADMIN=${local.edge_admin_name}\n" }
      "/usr/local/lib/weir/joined"      = { content = file("${path.module}/files/joined.sh"), mode = "0755" }
      "/usr/local/lib/weir/backup"      = { content = file("${path.module}/files/backup.sh"), mode = "0755" }
      "/etc/weir/backup.env"            = { content = "BACKUP_BUCKET=${aws_s3_bucket.nodes.bucket}\nBACKUP_REGION=${local.aws_region}\n" }
      "/etc/weir/joined.env"            = { content = "GROUP=${local.name}-consul\nGROUP_REGION=${local.aws_region}\nINSTANCE=@INSTANCE_ID@\nSERVER=@PRIVATE_IP@:8300\n" }
      "/etc/weir/snapshot.env"          = { content = "SNAPSHOT_BUCKET=${aws_s3_bucket.rules.bucket}\nSNAPSHOT_REGION=${local.aws_region}\nSNAPSHOT_SIGNATURES=${length(var.fleet.verify_keys) == 0 ? "no" : var.fleet.require_signed ? "require" : "keep"}\n" }
      "/etc/weir/fleet.yaml" = {
        content = yamlencode({ regions = [{ name = var.region, consul = { addr = "http://127.0.0.1:8500", datacenter = var.region, token_file = "/etc/weir/tokens/edge" } }] })
      }
    },
    { for name in fileset("${path.module}/files/policies", "*.hcl") : "/etc/weir/policies/${name}" => { content = file("${path.module}/files/policies/${name}") } },
  )
}

resource "aws_launch_template" "consul" {
  region                 = local.aws_region
  name                   = "${local.name}-consul"
  description            = "weir: Consul server"
  image_id               = var.ami_id
  instance_type          = var.consul.instance_type
  user_data              = module.consul_user_data.user_data
  vpc_security_group_ids = [aws_security_group.consul.id]
  update_default_version = true
  tags                   = local.tags

  iam_instance_profile {
    arn = aws_iam_instance_profile.instance["consul"].arn
  }

  metadata_options {
    http_endpoint               = "enabled"
    http_tokens                 = "required"
    http_put_response_hop_limit = 1
  }

  # Metrics every minute instead of every five.
  monitoring {
    enabled = true
  }

  block_device_mappings {
    device_name = "/dev/xvda"

    ebs {
      volume_size = 20
      volume_type = "gp3"
      encrypted   = true
      kms_key_id  = var.kms_key_arn
    }
  }

  tag_specifications {
    resource_type = "instance"
    tags          = merge(local.tags, { Name = "${local.name}-consul", (local.join_tag) = local.name })
  }

  tag_specifications {
    resource_type = "volume"
    tags          = local.tags
  }
}

resource "aws_autoscaling_group" "consul" {
  region              = local.aws_region
  name                = "${local.name}-consul"
  min_size            = var.consul.count
  max_size            = var.consul.count + 1
  desired_capacity    = var.consul.count
  vpc_zone_identifier = [for key in local.zone_keys : aws_subnet.private[key].id]
  target_group_arns   = [aws_lb_target_group.consul.arn]
  # Not the load balancer's verdict: a datacenter without a leader must not lose its
  # servers.
  health_check_type         = "EC2"
  health_check_grace_period = 300

  launch_template {
    id      = aws_launch_template.consul.id
    version = aws_launch_template.consul.latest_version
  }

  # A new server joins and copies the data before an old one leaves, so that a majority
  # always has it.
  instance_refresh {
    strategy = "Rolling"

    preferences {
      min_healthy_percentage = 100
      max_healthy_percentage = 100 + ceil(100 / var.consul.count)
      instance_warmup        = 300
      skip_matching          = true
    }
  }

  dynamic "tag" {
    for_each = merge(local.tags, { Name = "${local.name}-consul", (local.join_tag) = local.name })

    content {
      key                 = tag.key
      value               = tag.value
      propagate_at_launch = true
    }
  }

  depends_on = [aws_iam_role_policy.instance, aws_iam_role_policy.lifecycle, aws_iam_role_policy.nodes, aws_iam_role_policy.kms, aws_route.nat, aws_route_table_association.private, aws_vpc_endpoint.s3, aws_secretsmanager_secret_version.wan, aws_secretsmanager_secret_version.token]
}

# A refresh must not take a new server for a working one because its machine runs: with a
# release that does not start, it would replace all of them, and the data would be gone. A
# server that has not joined in time is ended, and the old ones stay.
resource "aws_autoscaling_lifecycle_hook" "consul" {
  region                 = local.aws_region
  name                   = "joined"
  autoscaling_group_name = aws_autoscaling_group.consul.name
  lifecycle_transition   = "autoscaling:EC2_INSTANCE_LAUNCHING"
  default_result         = "ABANDON"
  heartbeat_timeout      = 900
}

# Instances complete the hooks of their own group: a server has joined, an edge has drained.
data "aws_iam_policy_document" "lifecycle" {
  for_each = local.instance_secrets

  statement {
    sid       = "Lifecycle"
    actions   = ["autoscaling:CompleteLifecycleAction"]
    resources = ["arn:aws:autoscaling:${local.aws_region}:*:autoScalingGroup:*:autoScalingGroupName/${local.name}-${each.key}"]
  }
}

resource "aws_iam_role_policy" "lifecycle" {
  for_each = local.instance_secrets

  name   = "${local.name}-lifecycle"
  role   = aws_iam_role.instance[each.key].id
  policy = data.aws_iam_policy_document.lifecycle[each.key].json
}

# Consul's HTTPS interface for regionctl, under a stable name.

resource "aws_lb" "consul" {
  region                           = local.aws_region
  name                             = "${local.name}-consul"
  internal                         = true
  load_balancer_type               = "network"
  security_groups                  = [aws_security_group.api.id]
  subnets                          = [for key in local.zone_keys : aws_subnet.private[key].id]
  enable_cross_zone_load_balancing = true
  tags                             = local.tags
}

resource "aws_lb_target_group" "consul" {
  region   = local.aws_region
  name     = "${local.name}-consul"
  port     = 8501
  protocol = "TCP"
  vpc_id   = aws_vpc.this.id
  # A server may reach itself through the load balancer, and a peer from its own region.
  preserve_client_ip   = "false"
  deregistration_delay = 30
  tags                 = local.tags

  health_check {
    protocol            = "TCP"
    port                = "traffic-port"
    interval            = 10
    healthy_threshold   = 2
    unhealthy_threshold = 2
  }
}

resource "aws_lb_listener" "consul" {
  region            = local.aws_region
  load_balancer_arn = aws_lb.consul.arn
  port              = 8501
  protocol          = "TCP"
  tags              = local.tags

  default_action {
    type             = "forward"
    target_group_arn = aws_lb_target_group.consul.arn
  }
}
