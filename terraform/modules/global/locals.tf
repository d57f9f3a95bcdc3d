locals {
  tags  = merge(var.fleet.tags, { "weir:fleet" = var.fleet.name })
  names = sort(keys(var.regions))
  # Regions with what is known of them.
  regions = { for name, r in var.regions : name => merge(r, var.fleet.regions[name]) }

  secret_names = toset(["ca", "ca-key", "gossip", "shedder"])
  secrets = {
    ca      = tls_self_signed_cert.ca.cert_pem
    ca-key  = tls_private_key.ca.private_key_pem
    gossip  = jsonencode({ encrypt = random_bytes.gossip.base64 })
    shedder = random_bytes.shedder.hex
  }

  # The port of every PoP: either all have TLS or none.
  port = try(local.regions[local.names[0]].listener.port, 443)
  tls  = local.port == 443

  # What ACM looks for in the zone. It is the same in every region of an account.
  validations = var.fleet.request_certificates ? [for o in aws_acm_certificate.zone[0].domain_validation_options : { name = o.resource_record_name, type = o.resource_record_type, values = [o.resource_record_value] }] : []

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
        for zone in keys(local.regions[way.from].route_table_ids) :
        "${way.from}:${way.to}:${zone}" => { from = way.from, to = way.to, zone = zone, pair = key }
      }
    ]
  ])...)

  # Where regionctl answers for the zone.
  routed       = [for name in local.names : name if local.regions[name].routers != null]
  name_servers = { for name in local.routed : "ns-${name}.${var.fleet.dns.zone}" => local.regions[name].routers.addresses }

  # Which encrypt the tokens.
  keys = compact(values(local.regions)[*].kms_key_arn)

  # What the routers of each region fetch. One starts while another region is lost.
  router_files = {
    "fleet.yaml"       = { for name in local.routed : name => templatefile("${path.module}/templates/fleet.yaml.tftpl", { consuls = { for name, r in local.regions : name => r.consul } }) }
    "name-servers.env" = { for name in local.routed : name => "WEIR_DNS_NAME_SERVERS=\"${join(" ", [for host, addresses in local.name_servers : "--ns ${host}=${join(",", addresses)}"])}\"\n" }
    "secrets.more" = { for name in local.routed : name => join("", concat(
      [for other, r in local.regions : "/etc/weir/tokens/${other} weir ${r.token_arn} - ${r.consul.addr} ${r.consul.server_name} ${other == name ? "now" : "later"}\n"],
      [for file in ["fleet.yaml", "name-servers.env"] : "/etc/weir/${file} weir s3:${local.regions[name].aws_region}:${local.regions[name].bucket}/routers/${file} weir-dns.service - - now\n"],
    )) }
  }

  # Until the zone is delegated, Route 53 answers for it, and checks every address of each PoP.
  latency = var.fleet.dns.mode == "route53" || !var.fleet.dns.delegate
  checks = merge({}, [
    for name, r in local.regions : {
      for i, address in r.addresses : "${name}:${i}" => { region = name, address = address }
    } if local.latency
  ]...)
  health_checks = local.latency ? length(local.checks) + length(local.regions) : 0
}
