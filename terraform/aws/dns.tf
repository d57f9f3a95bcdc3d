# mode route53, and before dns.delegate: latency records. A record is left out while its load balancer has no
# healthy edge, or while requests through each of its addresses fail.

resource "aws_route53_health_check" "address" {
  for_each = local.checks

  fqdn              = var.dns.zone
  ip_address        = module.region[each.value.region].addresses[each.value.zone]
  port              = module.region[each.value.region].listener.port
  type              = local.tls ? "HTTPS" : "HTTP"
  resource_path     = var.dns.health_path
  request_interval  = 10
  failure_threshold = 2
  tags              = merge(local.tags, { Name = "${var.name} ${each.key}", "weir:region" = each.value.region })
}

resource "aws_route53_health_check" "pop" {
  for_each = { for name, r in var.regions : name => r if local.latency }

  type                   = "CALCULATED"
  child_health_threshold = 1
  child_healthchecks     = [for key, check in local.checks : aws_route53_health_check.address[key].id if check.region == each.key]
  tags                   = merge(local.tags, { Name = "${var.name} ${each.value.pop}", "weir:region" = each.key })
}

resource "aws_route53_record" "pop" {
  for_each = aws_route53_health_check.pop

  zone_id         = var.dns.hosted_zone_id
  name            = var.dns.zone
  type            = "A"
  set_identifier  = each.key
  health_check_id = each.value.id

  alias {
    name                   = module.region[each.key].listener.dns_name
    zone_id                = module.region[each.key].listener.zone_id
    evaluate_target_health = true
  }

  latency_routing_policy {
    region = var.regions[each.key].aws_region
  }

  # The delegation comes before these go: resolvers would keep the absence of both for
  # minutes.
  depends_on = [aws_route53_record.delegation]

  lifecycle {
    create_before_destroy = true
  }
}

# mode regionctl: the zone is delegated to the routers of every region.

resource "aws_eip" "dns" {
  for_each = local.dns_addresses

  region = var.regions[each.value.region].aws_region
  domain = "vpc"
  tags   = merge(local.tags, { Name = "${var.name} dns ${each.key}", "weir:region" = each.value.region })
}

module "dns" {
  source   = "../modules/dns"
  for_each = local.name_servers

  name           = var.name
  region         = each.key
  aws_region     = var.regions[each.key].aws_region
  zone           = var.dns.zone
  ttl            = var.dns.ttl
  nodes          = var.dns.nodes
  release        = local.releases[each.key]
  ami_id         = var.regions[each.key].ami_id
  ca_certificate = tls_self_signed_cert.ca.cert_pem
  fleet_cidrs    = local.fleet_cidrs
  edge_port      = module.region[each.key].edge_port
  probe_port     = local.probe_port
  operator_cidrs = var.operator_cidrs
  kms_key_arn    = var.regions[each.key].kms_key_arn
  geoip_key      = var.dns.geoip_key
  verify_keys    = var.verify_keys
  require_signed = var.require_signed
  name_servers   = { for name, host in local.name_servers : host => [for zone in range(var.regions[name].zones) : aws_eip.dns["${name}:${zone}"].public_ip] }
  allocation_ids = { for zone in range(var.regions[each.key].zones) : tostring(zone) => aws_eip.dns["${each.key}:${zone}"].allocation_id }
  tags           = var.tags

  network = {
    vpc_id             = module.region[each.key].vpc_id
    public_subnet_ids  = module.region[each.key].public_subnet_ids
    private_subnet_ids = module.region[each.key].private_subnet_ids
  }

  consuls = {
    for name, r in module.region : name => merge(r.consul, { token_arn = r.secret_arns["dns-token"], kms_key_arn = var.regions[name].kms_key_arn })
  }

  depends_on = [aws_route.peer]
}

resource "aws_route53_record" "delegation" {
  count = local.latency ? 0 : 1

  zone_id = var.dns.hosted_zone_id
  name    = var.dns.zone
  type    = "NS"
  ttl     = 3600
  records = [for host in values(local.name_servers) : "${host}."]

  # Until the zone is delegated, ACM finds its record in the hosted zone; from then on, the
  # topology's, which the routers answer.
  depends_on = [aws_acm_certificate_validation.zone]
}

resource "aws_route53_record" "glue" {
  for_each = local.name_servers

  zone_id = var.dns.hosted_zone_id
  name    = each.value
  type    = "A"
  ttl     = 3600
  records = [for zone in range(var.regions[each.key].zones) : aws_eip.dns["${each.key}:${zone}"].public_ip]
}
