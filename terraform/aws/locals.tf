locals {
  names = sort(keys(var.regions))
  # Where global resources are managed. Changing it moves nothing.
  home = var.regions[local.names[0]].aws_region
  tags = merge(var.tags, { "weir:fleet" = var.name })

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
  name_servers = { for name in local.names : name => "ns-${name}.${var.dns.zone}" if var.dns.mode == "regionctl" }
  dns_addresses = merge({}, [
    for name in keys(local.name_servers) : {
      for zone in range(var.regions[name].zones) : "${name}:${zone}" => { region = name, zone = tostring(zone) }
    }
  ]...)

  # In mode route53, Route 53 checks every address of each PoP.
  checks = merge({}, [
    for name in local.names : {
      for zone in range(var.regions[name].zones) : "${name}:${zone}" => { region = name, zone = zone }
    } if var.dns.mode == "route53"
  ]...)
}
