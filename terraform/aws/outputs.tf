output "url" {
  description = "The name that clients resolve."
  value       = "${local.tls ? "https" : "http"}://${var.dns.zone}/"
}

output "addresses" {
  description = "The public addresses of every PoP, by region."
  value       = { for name, r in module.region : name => r.addresses }
}

output "fleet" {
  description = "The fleet file of regionctl. Put consul-ca.pem, <region>.token and <region>.admin next to it: terraform output -raw ca_certificate, and the secrets of secret_arns."
  value = yamlencode({
    regions = [for name in local.names : merge(
      {
        name = name
        consul = {
          addr       = module.region[name].consul.addr
          datacenter = module.region[name].consul.datacenter
          token_file = "${name}.token"
          tls        = { ca_file = "consul-ca.pem", server_name = module.region[name].consul.server_name }
        }
        admin_token_file = "${name}.admin"
        admin_networks   = [var.regions[name].vpc_cidr]
      },
      module.region[name].edge_admin_name == null ? {} : { admin_tls = { ca_file = "consul-ca.pem", server_name = module.region[name].edge_admin_name } },
    )]
  })
}

output "topology" {
  description = "The topology, for regionctl topology apply."
  value = yamlencode(merge(
    {
      zone = var.dns.zone
      regions = [for name in local.names : {
        name = name
        pops = [merge(
          { name = var.regions[name].pop, addresses = module.region[name].addresses },
          var.regions[name].location == null ? {} : { location = var.regions[name].location },
          var.regions[name].capacity == null ? {} : { capacity = var.regions[name].capacity },
          length(var.regions[name].clients) == 0 ? {} : { clients = var.regions[name].clients },
        )]
      }]
    },
    var.dns.mode != "regionctl" ? {} : { probe = merge({ port = local.probe_port, path = var.dns.health_path }, local.tls ? { tls = true } : {}) },
    length(module.dns) == 0 ? {} : { routers = [for name, d in module.dns : {
      name = name, key = d.public_key, dns = "${aws_eip.dns["${name}:0"].public_ip}:53"
    }] },
    length(local.validations) == 0 ? {} : { records = local.validations },
    var.dns.steering == null ? {} : { steering = var.dns.steering },
    # Route 53 steers; the topology only describes the fleet.
    var.dns.steering == null && var.dns.mode == "route53" ? { steering = "first" } : {},
  ))
}

output "ca_certificate" {
  description = "The certificate that verifies Consul's servers."
  value       = tls_self_signed_cert.ca.cert_pem
}

output "secret_arns" {
  description = "The secrets of every region: regionctl-token and admin-token are for operators."
  value       = { for name, r in module.region : name => r.secret_arns }
}

output "autoscaling_groups" {
  description = "The autoscaling groups of every region, for instance refreshes."
  value       = { for name, r in module.region : name => merge(r.autoscaling_groups, { for own, d in module.dns : "dns" => d.autoscaling_group if own == name }) }
}

output "groups" {
  description = "The same for upgrade.sh: a line for each group, with its region in weir and in AWS."
  value = join("", flatten([for name, r in module.region : [
    for group in concat(values(r.autoscaling_groups), [for own, d in module.dns : d.autoscaling_group if own == name]) : "${name} ${var.regions[name].aws_region} ${group}\n"
  ]]))
}

output "name_servers" {
  description = "The zone's name servers in mode regionctl, with their addresses."
  value       = { for name, host in local.name_servers : host => [for zone in range(var.regions[name].zones) : aws_eip.dns["${name}:${zone}"].public_ip] }
}

output "addresses_needed" {
  description = "The number of elastic addresses the fleet takes, by AWS region."
  value       = local.addresses_needed

  precondition {
    condition     = alltrue([for place, need in local.addresses_needed : data.aws_servicequotas_service_quota.addresses[place].value >= need])
    error_message = "Too few elastic addresses: ${join(", ", [for place, need in local.addresses_needed : "${place} needs ${need} and its quota is ${data.aws_servicequotas_service_quota.addresses[place].value}"])}. Request a higher quota (Service Quotas, ec2, L-0263D0A3), or set nat_gateways or zones of the regions there."
  }
}
