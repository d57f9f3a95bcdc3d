locals {
  names = sort(keys(var.regions))
  # Where global resources are managed. Changing it moves nothing.
  home = var.regions[local.names[0]].aws_region
  tags = merge(var.tags, { "weir:fleet" = var.name })

  # From a bucket in the same region.
  releases = { for name, r in var.regions : name => merge(
    { bucket = var.release.buckets[r.aws_region], region = r.aws_region },
    lookup(var.releases, name, { key = var.release.key, sha256 = var.release.sha256 }),
  ) }

  fleet_cidrs = var.fleet_cidr == null ? [for name in local.names : var.regions[name].vpc_cidr] : [var.fleet_cidr]

  # Where routers run.
  routed = var.dns.mode == "regionctl" ? coalesce(var.dns.regions, local.names) : []

  # Whether clients connect by TLS: in all regions, or in none.
  tls = var.request_certificates || var.regions[local.names[0]].certificate_arn != null
  # Routers reach the load balancers as clients do.
  probe_port   = local.tls ? 443 : 80
  certificates = { for name, r in var.regions : name => var.request_certificates ? aws_acm_certificate_validation.zone[name].certificate_arn : r.certificate_arn }
  # What ACM looks for in the zone. It is the same in every region of an account.
  validations = var.request_certificates ? [for o in aws_acm_certificate.zone[local.names[0]].domain_validation_options : { name = o.resource_record_name, type = o.resource_record_type, values = [o.resource_record_value] }] : []

  # The elastic addresses that each AWS region must have: the load balancer's, the NAT
  # gateways', and those of the routers.
  addresses_needed = { for place in distinct([for r in values(var.regions) : r.aws_region]) : place => sum([
    for name, r in var.regions : r.aws_region != place ? 0 : r.zones + coalesce(r.nat_gateways, r.zones) + (contains(local.routed, name) ? r.zones : 0)
  ]) }

  # Each pair of regions once: "a:b" with a before b.
  pairs = merge({}, [
    for i, a in local.names : {
      for b in slice(local.names, i + 1, length(local.names)) : "${a}:${b}" => { a = a, b = b }
    }
  ]...)

  # A route from each zone of a region to each peer.
  routes = merge({}, flatten([
    for key, pair in local.pairs : [
      for way in [{ from = pair.a, to = pair.b }, { from = pair.b, to = pair.a }] : {
        for zone in range(var.regions[way.from].zones) :
        "${way.from}:${way.to}:${zone}" => { from = way.from, to = way.to, zone = tostring(zone), pair = key }
      }
    ]
  ])...)

  # The name servers if regionctl answers for the zone, and their addresses.
  name_servers = { for name in local.routed : name => "ns-${name}.${var.dns.zone}" }
  dns_addresses = merge({}, [
    for name in keys(local.name_servers) : {
      for zone in range(var.regions[name].zones) : "${name}:${zone}" => { region = name, zone = tostring(zone) }
    }
  ]...)

  # Until the zone is delegated, Route 53 answers for it, and checks every address of each PoP.
  latency = var.dns.mode == "route53" || !var.dns.delegate
  checks = merge({}, [
    for name in local.names : {
      for zone in range(var.regions[name].zones) : "${name}:${zone}" => { region = name, zone = zone }
    } if local.latency
  ]...)
}
