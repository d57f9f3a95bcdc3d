locals {
  edge_config = yamldecode(templatefile("${path.module}/templates/edge.yaml.tftpl", {
    region     = var.region
    pop        = var.pop
    edge_port  = local.edge_port
    admin_port = local.admin_port
    tls        = local.edge_tls
    upstreams  = var.upstreams
    bootstrap  = "https://${aws_s3_bucket.rules.bucket_regional_domain_name}/rules.yaml"
    documents  = length(var.fleet.verify_keys) == 0 ? null : { verify_keys = [local.keys_file], require_signed = var.fleet.require_signed }
    redis      = "${aws_elasticache_replication_group.this.configuration_endpoint_address}:${local.redis_port}"
  }))
  edge_extra = try(yamldecode(var.extra_config), {})
  # Sections that both have are merged, and so are blocks in them.
  edge_merged = {
    for section in setunion(keys(local.edge_config), keys(local.edge_extra)) : section => try(
      merge(local.edge_config[section], local.edge_extra[section], {
        for name, block in local.edge_extra[section] : name => try(merge(local.edge_config[section][name], block), block)
      }),
      local.edge_extra[section], local.edge_config[section],
    )
  }
}

module "edge_user_data" {
  source = "../cloud-init"

  release = local.release
  logs    = local.logs
  secrets = merge(local.instance_secrets.edge, local.edge_identity)
  start   = ["weir-consul.service", "weir-edge.service", "weir-drain.service"]

  units = {
    "weir-consul.service" = file("${path.module}/files/weir-consul.service")
    "weir-drain.service"  = file("${path.module}/files/weir-drain.service")
    "weir-edge.service"   = file("${path.module}/../../../deploy/systemd/weir-edge.service")
  }

  files = merge({
    "/etc/weir/edge.yaml" = { content = yamlencode(local.edge_merged) }
    "/etc/consul.d/consul.json" = {
      content = templatefile("${path.module}/templates/consul-agent.json.tftpl", {
        datacenter = var.region
        retry_join = local.retry_join
      })
    }
    # Until a Consul server has certified it.
    "/etc/systemd/system/weir-edge.service.d/admin.conf" = { content = file("${path.module}/files/weir-edge.conf") }
    "/usr/local/lib/weir/admin"                          = { content = file("${path.module}/files/admin.sh"), mode = "0755" }
    "/usr/local/lib/weir/drain"                          = { content = file("${path.module}/files/drain.sh"), mode = "0755" }
    "/etc/weir/drain.env"                                = { content = "GROUP=${local.name}-edge\nGROUP_REGION=${local.aws_region}\nDEREGISTRATION=${local.deregistration_delay}\nINSTANCE=@INSTANCE_ID@\n" }
    }, length(var.fleet.verify_keys) == 0 ? {} : {
    (local.keys_file) = { content = join("", [for key in var.fleet.verify_keys : "${trimspace(key)}\n"]) }
  })
}

resource "aws_launch_template" "edge" {
  region                 = local.aws_region
  name                   = "${local.name}-edge"
  description            = "weir: edge node"
  image_id               = var.ami_id
  instance_type          = var.edges.instance_type
  user_data              = module.edge_user_data.user_data
  vpc_security_group_ids = [aws_security_group.edge.id]
  update_default_version = true
  tags                   = local.tags

  iam_instance_profile {
    arn = aws_iam_instance_profile.instance["edge"].arn
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
      volume_size = 10
      volume_type = "gp3"
      encrypted   = true
      kms_key_id  = var.kms_key_arn
    }
  }

  tag_specifications {
    resource_type = "instance"
    tags          = merge(local.tags, { Name = "${local.name}-edge" })
  }

  tag_specifications {
    resource_type = "volume"
    tags          = local.tags
  }
}

resource "aws_autoscaling_group" "edge" {
  region   = local.aws_region
  name     = "${local.name}-edge"
  min_size = var.edges.count
  # One more, for a refresh at the maximum.
  max_size            = local.edges_max + 1
  desired_capacity    = var.edges.count
  vpc_zone_identifier = [for key in local.zone_keys : aws_subnet.private[key].id]
  target_group_arns   = [aws_lb_target_group.edge.arn]
  health_check_type   = "ELB"
  # Long enough to publish the first rules: without rules no edge is ready.
  health_check_grace_period = 900

  launch_template {
    id      = aws_launch_template.edge.id
    version = aws_launch_template.edge.latest_version
  }

  # One by one: a new node serves before an old one drains. No auto_rollback: the provider gives the
  # group the new template before the refresh, so it would roll back to that.
  instance_refresh {
    strategy = "Rolling"

    preferences {
      min_healthy_percentage = 100
      max_healthy_percentage = 100 + ceil(100 / var.edges.count)
      instance_warmup        = 60
      skip_matching          = true
    }
  }

  dynamic "tag" {
    for_each = merge(local.tags, { Name = "${local.name}-edge" })

    content {
      key                 = tag.key
      value               = tag.value
      propagate_at_launch = true
    }
  }

  lifecycle {
    # The policy below changes it.
    ignore_changes = [desired_capacity]
  }

  depends_on = [aws_iam_role_policy.instance, aws_iam_role_policy.lifecycle, aws_iam_role_policy.identity, aws_iam_role_policy.kms, aws_route.nat, aws_route_table_association.private, aws_vpc_endpoint.s3, aws_secretsmanager_secret_version.token, aws_secretsmanager_secret_version.redis]
}

# The group terminates no edge that still has requests: the load balancer deregisters it, and after
# deregistration_delay weir-drain.service stops it, which takes a minute at most. An instance that
# cannot complete the hook is terminated after heartbeat_timeout, which is longer than both even if
# the group reaches the hook before it deregisters.
resource "aws_autoscaling_lifecycle_hook" "edge" {
  region                 = local.aws_region
  name                   = "drained"
  autoscaling_group_name = aws_autoscaling_group.edge.name
  lifecycle_transition   = "autoscaling:EC2_INSTANCE_TERMINATING"
  default_result         = "CONTINUE"
  heartbeat_timeout      = 300
}

# More edges above the target, fewer well below it. A new edge takes no clients before it is
# ready, so the target leaves room for the minutes that this takes.
resource "aws_autoscaling_policy" "edge" {
  region                    = local.aws_region
  name                      = "${local.name}-edge"
  autoscaling_group_name    = aws_autoscaling_group.edge.name
  policy_type               = "TargetTrackingScaling"
  estimated_instance_warmup = 120

  target_tracking_configuration {
    target_value = var.edges.target_cpu

    predefined_metric_specification {
      predefined_metric_type = "ASGAverageCPUUtilization"
    }
  }
}

# The PoP's addresses, one in each zone. They outlive the load balancer's nodes, so that
# the topology can name them.
resource "aws_eip" "lb" {
  for_each = local.zone_keys

  region = local.aws_region
  domain = "vpc"
  tags   = merge(local.tags, { Name = "${local.name}-${var.pop}-${each.key}" })
}

resource "aws_lb" "edge" {
  region                           = local.aws_region
  name                             = "${local.name}-edge"
  internal                         = false
  load_balancer_type               = "network"
  security_groups                  = [aws_security_group.lb.id]
  enable_cross_zone_load_balancing = true
  tags                             = local.tags

  dynamic "subnet_mapping" {
    for_each = local.zone_keys

    content {
      subnet_id     = aws_subnet.public[subnet_mapping.value].id
      allocation_id = aws_eip.lb[subnet_mapping.value].allocation_id
    }
  }

  depends_on = [aws_route.internet]
}

resource "aws_lb_target_group" "edge" {
  region   = local.aws_region
  name     = "${local.name}-edge"
  port     = local.edge_port
  protocol = "TCP"
  vpc_id   = aws_vpc.this.id
  # The edge counts clients by their address at the other end of the connection. So it needs no
  # PROXY header, which would also come with health checks, on a port that expects none.
  preserve_client_ip = "true"
  # Longer than the load balancer takes to stop sending new connections. Those that are open stay
  # until the edge, which drains next, has closed them.
  deregistration_delay   = local.deregistration_delay
  connection_termination = false
  tags                   = local.tags

  health_check {
    protocol            = "HTTPS"
    port                = tostring(local.admin_port)
    path                = "/readyz"
    matcher             = "200"
    interval            = 5
    timeout             = 2
    healthy_threshold   = 2
    unhealthy_threshold = 2
  }
}

resource "aws_lb_listener" "edge" {
  region            = local.aws_region
  load_balancer_arn = aws_lb.edge.arn
  port              = local.listener_port
  protocol          = local.tls && !local.edge_tls ? "TLS" : "TCP"
  certificate_arn   = local.certificate_arn
  ssl_policy        = !local.tls || local.edge_tls ? null : "ELBSecurityPolicy-TLS13-1-2-2021-06"
  tags              = local.tags

  default_action {
    type             = "forward"
    target_group_arn = aws_lb_target_group.edge.arn
  }
}
