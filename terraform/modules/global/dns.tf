# mode route53, and before dns.delegate: latency records. A record is left out while its load balancer has no
# healthy edge, or while requests through each of its addresses fail.

# us-east-1 has the quotas of Route 53, and its API.
data "aws_servicequotas_service_quota" "health_checks" {
  count = local.latency ? 1 : 0

  region       = "us-east-1"
  service_code = "route53"
  quota_code   = "L-ACB674F3"
}

resource "aws_route53_health_check" "address" {
  for_each = local.checks

  fqdn              = var.fleet.dns.zone
  ip_address        = each.value.address
  port              = local.port
  type              = local.tls ? "HTTPS" : "HTTP"
  resource_path     = var.fleet.dns.health_path
  request_interval  = 10
  failure_threshold = 2
  tags              = merge(local.tags, { Name = "${var.fleet.name} ${each.key}", "weir:region" = each.value.region })
}

resource "aws_route53_health_check" "pop" {
  for_each = { for name, r in local.regions : name => r if local.latency }

  type                   = "CALCULATED"
  child_health_threshold = 1
  child_healthchecks     = [for key, check in local.checks : aws_route53_health_check.address[key].id if check.region == each.key]
  tags                   = merge(local.tags, { Name = "${var.fleet.name} ${each.value.pop}", "weir:region" = each.key })
}

resource "aws_route53_record" "pop" {
  for_each = aws_route53_health_check.pop

  zone_id         = var.fleet.dns.hosted_zone_id
  name            = var.fleet.dns.zone
  type            = "A"
  set_identifier  = each.key
  health_check_id = each.value.id

  alias {
    name                   = local.regions[each.key].listener.dns_name
    zone_id                = local.regions[each.key].listener.zone_id
    evaluate_target_health = true
  }

  latency_routing_policy {
    region = local.regions[each.key].aws_region
  }

  # The delegation comes before these go: resolvers would keep the absence of both for
  # minutes.
  depends_on = [aws_route53_record.delegation]

  lifecycle {
    create_before_destroy = true
  }
}

# mode regionctl: the zone is delegated to the routers.

resource "aws_route53_record" "delegation" {
  count = local.latency ? 0 : 1

  zone_id = var.fleet.dns.hosted_zone_id
  name    = var.fleet.dns.zone
  type    = "NS"
  ttl     = 3600
  records = [for host in keys(local.name_servers) : "${host}."]

  lifecycle {
    precondition {
      condition     = length(local.name_servers) > 0
      error_message = "fleet.dns.delegate: no region with routers is in regions yet. Set it to false until there is one."
    }
  }
}

resource "aws_route53_record" "glue" {
  for_each = local.name_servers

  zone_id = var.fleet.dns.hosted_zone_id
  name    = each.key
  type    = "A"
  ttl     = 3600
  records = each.value
}

# What the routers know of all regions: in the bucket of their own, so that a lost region stops none
# and another one replaces none.

resource "aws_s3_object" "routers" {
  for_each = merge([for file, texts in local.router_files : { for name, text in texts : "${name}/${file}" => { region = name, file = file, text = text } }]...)

  region  = local.regions[each.value.region].aws_region
  bucket  = local.regions[each.value.region].bucket
  key     = "routers/${each.value.file}"
  content = each.value.text
  tags    = merge(local.tags, { "weir:region" = each.value.region })
}

data "aws_iam_policy_document" "routers" {
  statement {
    sid       = "Tokens"
    actions   = ["secretsmanager:GetSecretValue"]
    resources = values(local.regions)[*].token_arn
  }
}

data "aws_iam_policy_document" "keys" {
  statement {
    sid       = "Keys"
    actions   = ["kms:Decrypt"]
    resources = local.keys
  }
}

resource "aws_iam_role_policy" "routers" {
  for_each = toset(local.routed)

  name   = "${var.fleet.name}-fleet"
  role   = local.regions[each.key].routers.role
  policy = data.aws_iam_policy_document.routers.json
}

resource "aws_iam_role_policy" "keys" {
  for_each = toset(length(local.keys) == 0 ? [] : local.routed)

  name   = "${var.fleet.name}-keys"
  role   = local.regions[each.key].routers.role
  policy = data.aws_iam_policy_document.keys.json
}

# With request_certificates: the record by which ACM validates the zone's certificate in every
# region, and renews it. Once the zone is delegated, output topology holds it. This certificate is
# only there to learn the record before the first region is.

resource "aws_acm_certificate" "zone" {
  count = var.fleet.request_certificates ? 1 : 0

  region            = var.fleet.home
  domain_name       = var.fleet.dns.zone
  validation_method = "DNS"
  tags              = local.tags

  lifecycle {
    create_before_destroy = true
  }
}

resource "aws_route53_record" "validation" {
  count = var.fleet.request_certificates ? 1 : 0

  zone_id         = var.fleet.dns.hosted_zone_id
  name            = local.validations[0].name
  type            = local.validations[0].type
  ttl             = 300
  records         = local.validations[0].values
  allow_overwrite = true
}
