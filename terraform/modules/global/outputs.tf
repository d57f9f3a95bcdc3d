output "url" {
  description = "The name that clients resolve."
  value       = "${local.tls ? "https" : "http"}://${var.fleet.dns.zone}/"

  precondition {
    condition     = local.health_checks <= try(data.aws_servicequotas_service_quota.health_checks[0].value, 0)
    error_message = "Too few Route 53 health checks: the fleet needs ${local.health_checks} and the account's quota is ${try(data.aws_servicequotas_service_quota.health_checks[0].value, 0)}. Request a higher quota (Service Quotas in us-east-1, route53, L-ACB674F3), or use mode regionctl."
  }
}

output "fleet" {
  description = "The fleet file of regionctl. Put consul-ca.pem, <region>.token and <region>.admin next to it: output ca_certificate, and the secrets that each region's secret_arns names."
  value = yamlencode({
    regions = [for name in local.names : {
      name = name
      consul = {
        addr       = local.regions[name].consul.addr
        datacenter = name
        token_file = "${name}.token"
        tls        = { ca_file = "consul-ca.pem", server_name = local.regions[name].consul.server_name }
      }
      admin_token_file = "${name}.admin"
      admin_networks   = [local.regions[name].vpc_cidr]
      admin_tls        = { ca_file = "consul-ca.pem", server_name = local.regions[name].admin_name }
    }]
  })
}

output "topology" {
  description = "The topology, for regionctl topology apply."
  value = yamlencode(merge(
    {
      zone = var.fleet.dns.zone
      regions = [for name in local.names : {
        name = name
        pops = [merge(
          { name = local.regions[name].pop, addresses = local.regions[name].addresses },
          { for field in ["location", "capacity"] : field => local.regions[name][field] if local.regions[name][field] != null },
          length(local.regions[name].clients) == 0 ? {} : { clients = local.regions[name].clients },
        )]
      }]
    },
    var.fleet.dns.mode != "regionctl" ? {} : { probe = merge({ port = local.port, path = var.fleet.dns.health_path }, local.tls ? { tls = true } : {}) },
    length(local.routed) == 0 ? {} : { routers = [for name in local.routed : {
      name = name, key = local.regions[name].routers.key, dns = "${local.regions[name].routers.addresses[0]}:53"
    }] },
    length(local.validations) == 0 ? {} : { records = local.validations },
    var.fleet.dns.steering == null ? {} : { steering = var.fleet.dns.steering },
    # Route 53 steers; the topology only describes the fleet.
    var.fleet.dns.steering == null && var.fleet.dns.mode == "route53" ? { steering = "first" } : {},
  ))
}

output "ca_certificate" {
  description = "The certificate that verifies Consul's servers and the edges' admin side."
  value       = tls_self_signed_cert.ca.cert_pem
}

output "name_servers" {
  description = "The zone's name servers in mode regionctl, with their addresses."
  value       = local.name_servers
}
