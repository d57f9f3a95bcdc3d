locals {
  aws_region = var.fleet.regions[var.region].aws_region
  vpc_cidr   = var.fleet.regions[var.region].vpc_cidr
  release    = merge(var.release, { region = local.aws_region })

  name = "${var.fleet.name}-${var.region}"
  tags = merge(var.fleet.tags, { "weir:fleet" = var.fleet.name, "weir:region" = var.region })

  # At most, with target tracking.
  edges_max = coalesce(var.edges.max, 2 * var.edges.count)

  edge_port     = 8080
  admin_port    = 8081
  redis_port    = 6379
  listener_port = local.tls ? 443 : 80

  # Whether clients connect by TLS: in all regions, or in none.
  tls             = var.fleet.request_certificates || var.certificate_arn != null
  edge_tls        = can(regex(":secretsmanager:", var.certificate_arn)) # TLS ends in the edges
  certificate_arn = local.edge_tls ? null : var.fleet.request_certificates ? aws_acm_certificate_validation.zone[0].certificate_arn : var.certificate_arn

  # Whether routers run here.
  routed = var.fleet.dns.mode == "regionctl" && contains(coalesce(var.fleet.dns.regions, keys(var.fleet.regions)), var.region)

  # Seconds in which the load balancer stops sending a terminating edge new connections.
  deregistration_delay = 120

  # The load balancer's, the NAT gateways' and the routers'.
  addresses_needed = var.zones + local.nats + (local.routed ? var.zones : 0)

  peers = length(var.fleet.regions) - 1

  # What each group runs at most: one more while its instances are replaced.
  machines = merge({
    edge   = { type = var.edges.instance_type, count = local.edges_max + 1 }
    consul = { type = var.consul.instance_type, count = var.consul.count + 1 }
  }, local.routed ? { dns = { type = var.routers.instance_type, count = var.routers.count + 1 } } : {})
  cpus_needed = sum([for name, m in local.machines : m.count * data.aws_ec2_instance_type.this[name].default_vcpus])

  # Where logs go, and who sends them.
  logs  = var.fleet.log_days == null ? null : { group = local.name, region = local.aws_region }
  roles = merge({ for name, role in aws_iam_role.instance : name => role.name }, local.routed ? { dns = module.dns[0].role } : {})

  # By which Consul finds its servers, here and in the other regions.
  join_tag = "weir:consul"
  retry_join = [
    "provider=aws region=${local.aws_region} tag_key=${local.join_tag} tag_value=${local.name} addr_type=private_v4",
  ]
  retry_join_wan = [
    for region, r in var.fleet.regions :
    "provider=aws region=${r.aws_region} tag_key=${local.join_tag} tag_value=${var.fleet.name}-${region} addr_type=private_v4" if region != var.region
  ]

  # Who may sign documents, as the edges read it.
  keys_file = "/etc/weir/document-keys.pem"

  consul_server_name = "server.${var.region}.consul"
  edge_admin_name    = "edge-admin.${var.region}.weir"

  # What the global root generates, in a copy in this AWS region: not an ARN, so that no root waits for
  # another.
  fleet_secret = "secret:${local.aws_region}:${var.fleet.name}/fleet"
}
