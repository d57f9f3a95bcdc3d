module "user_data" {
  source = "../cloud-init"

  release = var.release
  logs    = var.logs
  secrets = local.secrets
  # Without its database a router sends everyone to one PoP, so it waits for it, for a few minutes.
  start = concat(var.geoip_key == null ? [] : ["weir-geoip.service", "weir-geoip.timer"], ["weir-dns.service"])

  units = merge({
    "weir-dns.service" = file("${path.module}/../../../deploy/systemd/weir-dns.service")
    }, var.geoip_key == null ? {} : {
    "weir-geoip.service" = file("${path.module}/files/weir-geoip.service")
    "weir-geoip.timer"   = file("${path.module}/files/weir-geoip.timer")
  })

  files = merge({
    "/etc/weir/dns.env" = {
      content = templatefile("${path.module}/templates/dns.env.tftpl", {
        port           = local.dns_port
        metrics        = local.metrics_port
        zone           = var.zone
        ttl            = var.ttl
        keys_file      = length(var.verify_keys) == 0 ? "" : local.keys_file
        require_signed = var.require_signed
        key_file       = local.key_file
      })
    }
    }, var.geoip_key == null ? {} : {
    "/etc/systemd/system/weir-dns.service.d/geoip.conf" = { content = file("${path.module}/files/weir-dns.conf") }
    "/usr/local/lib/weir/geoip"                         = { content = file("${path.module}/files/geoip.sh"), mode = "0755" }
    "/etc/weir/geoip.env"                               = { content = "GEOIP_BUCKET='${var.release.bucket}'\nGEOIP_KEY='${var.geoip_key}'\nGEOIP_REGION='${var.release.region}'\n" }
    }, length(var.verify_keys) == 0 ? {} : {
    (local.keys_file) = { content = join("", [for key in var.verify_keys : "${trimspace(key)}\n"]) }
  })
}

# All routers of the region share a key. The topology names it.

resource "tls_private_key" "router" {
  algorithm = "ED25519"
}

resource "aws_secretsmanager_secret" "key" {
  region                  = var.aws_region
  name                    = "${var.name}/${var.region}/dns-key"
  description             = "weir ${var.region}: key of the DNS routers"
  recovery_window_in_days = 0
  kms_key_id              = var.kms_key_arn
  tags                    = local.tags
}

resource "aws_secretsmanager_secret_version" "key" {
  region        = var.aws_region
  secret_id     = aws_secretsmanager_secret.key.id
  secret_string = tls_private_key.router.private_key_pem_pkcs8
}

# Everyone may reach the load balancer's port 53; only the load balancer may reach the
# routers.

resource "aws_security_group" "lb" {
  region      = var.aws_region
  name        = "${local.name}-lb"
  description = "weir: the load balancer before the DNS routers"
  vpc_id      = var.network.vpc_id
  tags        = merge(local.tags, { Name = "${local.name}-lb" })
}

resource "aws_security_group" "node" {
  region      = var.aws_region
  name        = local.name
  description = "weir: DNS routers"
  vpc_id      = var.network.vpc_id
  tags        = merge(local.tags, { Name = local.name })
}

resource "aws_vpc_security_group_ingress_rule" "lb_listener" {
  for_each = toset(["tcp", "udp"])

  region            = var.aws_region
  security_group_id = aws_security_group.lb.id
  description       = "Resolvers, from everywhere"
  cidr_ipv4         = "0.0.0.0/0"
  ip_protocol       = each.value
  from_port         = local.dns_port
  to_port           = local.dns_port
  tags              = local.tags
}

resource "aws_vpc_security_group_egress_rule" "lb" {
  for_each = toset(["tcp", "udp"])

  region                       = var.aws_region
  security_group_id            = aws_security_group.lb.id
  description                  = "To the routers"
  referenced_security_group_id = aws_security_group.node.id
  ip_protocol                  = each.value
  from_port                    = local.dns_port
  to_port                      = local.dns_port
  tags                         = local.tags
}

resource "aws_vpc_security_group_egress_rule" "lb_health" {
  region                       = var.aws_region
  security_group_id            = aws_security_group.lb.id
  description                  = "To the routers: health"
  referenced_security_group_id = aws_security_group.node.id
  ip_protocol                  = "tcp"
  from_port                    = local.metrics_port
  to_port                      = local.metrics_port
  tags                         = local.tags
}

resource "aws_vpc_security_group_ingress_rule" "node_health" {
  region                       = var.aws_region
  security_group_id            = aws_security_group.node.id
  description                  = "From the load balancer: health"
  referenced_security_group_id = aws_security_group.lb.id
  ip_protocol                  = "tcp"
  from_port                    = local.metrics_port
  to_port                      = local.metrics_port
  tags                         = local.tags
}

resource "aws_vpc_security_group_ingress_rule" "node_metrics" {
  for_each = toset(var.operator_cidrs)

  region            = var.aws_region
  security_group_id = aws_security_group.node.id
  description       = "Operators: metrics"
  cidr_ipv4         = each.value
  ip_protocol       = "tcp"
  from_port         = local.metrics_port
  to_port           = local.metrics_port
  tags              = local.tags
}

resource "aws_vpc_security_group_ingress_rule" "node" {
  for_each = toset(["tcp", "udp"])

  region                       = var.aws_region
  security_group_id            = aws_security_group.node.id
  description                  = "From the load balancer"
  referenced_security_group_id = aws_security_group.lb.id
  ip_protocol                  = each.value
  from_port                    = local.dns_port
  to_port                      = local.dns_port
  tags                         = local.tags
}

# In every region: its Consul, and its edges, to which a router connects to learn whether a
# region without answers still serves.
resource "aws_vpc_security_group_egress_rule" "node_fleet" {
  for_each = { consul = 8501, edges = var.edge_port }

  region            = var.aws_region
  security_group_id = aws_security_group.node.id
  description       = "To every region: ${each.key}"
  cidr_ipv4         = var.fleet_cidr
  ip_protocol       = "tcp"
  from_port         = each.value
  to_port           = each.value
  tags              = local.tags
}

resource "aws_vpc_security_group_egress_rule" "node_dns" {
  region            = var.aws_region
  security_group_id = aws_security_group.node.id
  description       = "To routers of other regions, at their public addresses"
  cidr_ipv4         = "0.0.0.0/0"
  ip_protocol       = "tcp"
  from_port         = local.dns_port
  to_port           = local.dns_port
  tags              = local.tags
}

resource "aws_vpc_security_group_egress_rule" "node_world" {
  for_each = toset(["443", tostring(var.probe_port)])

  region            = var.aws_region
  security_group_id = aws_security_group.node.id
  description       = "To S3, Secrets Manager and the PoPs that it probes"
  cidr_ipv4         = "0.0.0.0/0"
  ip_protocol       = "tcp"
  from_port         = tonumber(each.value)
  to_port           = tonumber(each.value)
  tags              = local.tags
}

# The role.

data "aws_iam_policy_document" "ec2" {
  statement {
    actions = ["sts:AssumeRole"]

    principals {
      type        = "Service"
      identifiers = ["ec2.amazonaws.com"]
    }
  }
}

data "aws_iam_policy_document" "node" {
  statement {
    sid       = "Secrets"
    actions   = ["secretsmanager:GetSecretValue"]
    resources = [aws_secretsmanager_secret.key.arn, "arn:aws:secretsmanager:${var.aws_region}:*:${replace(var.ca_secret, ":${var.aws_region}:", ":")}-??????"]
  }

  statement {
    sid       = "Release"
    actions   = ["s3:GetObject"]
    resources = [for key in compact([var.release.key, var.geoip_key]) : "arn:aws:s3:::${var.release.bucket}/${key}"]
  }

  statement {
    sid       = "Facts"
    actions   = ["s3:GetObject"]
    resources = ["arn:aws:s3:::${local.facts}/*"]
  }
}

# The tokens of all regions and the keys that encrypt them are added by the global root.

data "aws_iam_policy_document" "kms" {
  count = var.kms_key_arn == null ? 0 : 1

  statement {
    sid       = "Key"
    actions   = ["kms:Decrypt"]
    resources = [var.kms_key_arn]
  }
}

resource "aws_iam_role_policy" "kms" {
  count = var.kms_key_arn == null ? 0 : 1

  name   = "${local.name}-kms"
  role   = aws_iam_role.node.id
  policy = data.aws_iam_policy_document.kms[0].json
}

resource "aws_iam_role" "node" {
  name               = local.name
  description        = "weir ${var.region}: DNS routers"
  assume_role_policy = data.aws_iam_policy_document.ec2.json
  tags               = local.tags
}

resource "aws_iam_role_policy" "node" {
  name   = local.name
  role   = aws_iam_role.node.id
  policy = data.aws_iam_policy_document.node.json
}

resource "aws_iam_instance_profile" "node" {
  name = local.name
  role = aws_iam_role.node.name
  tags = local.tags
}

# The routers.

resource "aws_launch_template" "node" {
  region                 = var.aws_region
  name                   = local.name
  description            = "weir: DNS router"
  image_id               = var.ami_id
  instance_type          = var.nodes.instance_type
  user_data              = module.user_data.user_data
  vpc_security_group_ids = [aws_security_group.node.id]
  update_default_version = true
  tags                   = local.tags

  iam_instance_profile {
    arn = aws_iam_instance_profile.node.arn
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
    tags          = merge(local.tags, { Name = local.name })
  }

  tag_specifications {
    resource_type = "volume"
    tags          = local.tags
  }
}

resource "aws_autoscaling_group" "node" {
  region              = var.aws_region
  name                = local.name
  min_size            = var.nodes.count
  max_size            = var.nodes.count + 1
  desired_capacity    = var.nodes.count
  vpc_zone_identifier = values(var.network.private_subnet_ids)
  target_group_arns   = [aws_lb_target_group.dns.arn]
  health_check_type   = "ELB"
  # Long enough for the global root to write what they start with.
  health_check_grace_period = 900

  launch_template {
    id      = aws_launch_template.node.id
    version = aws_launch_template.node.latest_version
  }

  instance_refresh {
    strategy = "Rolling"

    preferences {
      min_healthy_percentage = 100
      max_healthy_percentage = 100 + ceil(100 / var.nodes.count)
      instance_warmup        = 60
      skip_matching          = true
    }
  }

  dynamic "tag" {
    for_each = merge(local.tags, { Name = local.name })

    content {
      key                 = tag.key
      value               = tag.value
      propagate_at_launch = true
    }
  }

  depends_on = [aws_iam_role_policy.node, aws_iam_role_policy.kms, aws_secretsmanager_secret_version.key]
}

resource "aws_lb" "dns" {
  region                           = var.aws_region
  name                             = local.name
  internal                         = false
  load_balancer_type               = "network"
  security_groups                  = [aws_security_group.lb.id]
  enable_cross_zone_load_balancing = true
  tags                             = local.tags

  dynamic "subnet_mapping" {
    for_each = var.network.public_subnet_ids

    content {
      subnet_id     = subnet_mapping.value
      allocation_id = var.allocation_ids[subnet_mapping.key]
    }
  }
}

resource "aws_lb_target_group" "dns" {
  region   = var.aws_region
  name     = local.name
  port     = local.dns_port
  protocol = "TCP_UDP"
  vpc_id   = var.network.vpc_id
  # The resolver's address decides where its clients go.
  preserve_client_ip   = "true"
  deregistration_delay = 30
  tags                 = local.tags

  # A router without a topology listens but does not answer.
  health_check {
    protocol            = "HTTP"
    port                = tostring(local.metrics_port)
    path                = "/readyz"
    matcher             = "200"
    interval            = 10
    healthy_threshold   = 2
    unhealthy_threshold = 2
  }
}

resource "aws_lb_listener" "dns" {
  region            = var.aws_region
  load_balancer_arn = aws_lb.dns.arn
  port              = local.dns_port
  protocol          = "TCP_UDP"
  tags              = local.tags

  default_action {
    type             = "forward"
    target_group_arn = aws_lb_target_group.dns.arn
  }
}
