locals {
  names = sort(keys(var.regions))
  # Where global resources are managed from. Changing it moves nothing.
  home = var.regions[local.names[0]].aws_region
  tags = merge(var.tags, { "weir:fleet" = var.name })

  # Every region with every other, once: "a:b" with a before b.
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

  # Who answers for the zone if regionctl does, and from which addresses.
  name_servers = { for name in local.names : name => "ns-${name}.${var.dns.zone}" if var.dns.mode == "regionctl" }
  dns_addresses = merge({}, [
    for name in keys(local.name_servers) : {
      for zone in range(var.regions[name].zones) : "${name}:${zone}" => { region = name, zone = tostring(zone) }
    }
  ]...)

  # What Route 53 asks, if it finds the PoPs: every address of each.
  checks = merge({}, [
    for name in local.names : {
      for zone in range(var.regions[name].zones) : "${name}:${zone}" => { region = name, zone = zone }
    } if var.dns.mode == "route53"
  ]...)
}
