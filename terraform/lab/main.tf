# Regions on this machine: every process is a real one, on its own loopback address.
# README.md lists the addresses.

locals {
  dir     = abspath(var.dir)
  bin     = abspath(var.bin)
  scripts = abspath("${path.module}/scripts")

  # The environment of every script that Terraform starts. make lab-down finds the
  # processes to end by the mark.
  environment = { LAB = local.dir, WEIR_LAB_MARK = local.dir }

  # Regions in the order of their numbers, as in the fleet file: the first one holds the
  # lock of every change, which must not depend on the alphabet.
  order = [for key in sort([for name, r in var.regions : format("%03d %s", r.number, name)]) : split(" ", key)[1]]

  fleet = { regions = [for name in local.order : {
    name           = name
    consul         = { addr = "${module.region[name].consul}:8500", datacenter = name }
    admin_networks = ["${var.network}.0.0/16"]
    admin_tls      = var.admin_tls == null ? null : { ca_file = abspath(var.admin_tls.ca_file), server_name = "weir-edge" }
  }] }

  topology = {
    zone  = var.zone
    probe = { port = 8080 } # regionctl dns tries the addresses itself while no Consul reports
    regions = [for name in local.order : {
      name = name
      pops = [for pop in var.regions[name].pops : merge(
        { name = pop.name, addresses = module.region[name].pops[pop.name] },
        pop.location == null ? {} : { location = pop.location },
        pop.weight == null ? {} : { weight = pop.weight },
        pop.capacity == null ? {} : { capacity = pop.capacity },
        length(pop.clients) == 0 ? {} : { clients = pop.clients },
      )]
    }]
  }

  # The distance between regions: proxies delay messages between their edges, at an address of
  # the calling region.
  seats = { for name, r in var.regions : name => flatten([for p, pop in r.pops : [for e in range(1, r.edges_per_pop + 1) : {
    id = "${name}-${pop.name}-${e}", host = 10 * (p + 1) + e
  }]]) }
  trips = { for from in local.order : from => { for to in local.order : to =>
    one([for t in var.round_trips : t.ms if from != to && contains(t.between, from) && contains(t.between, to)])
  } }
  far = flatten([for from in local.order : [for to in local.order : [for s in local.seats[to] : {
    from   = from, to = to, id = s.id, round_trip_ms = local.trips[from][to]
    listen = "${var.network}.${var.regions[from].number}.200:${10000 + 100 * var.regions[to].number + s.host}"
    target = "${var.network}.${var.regions[to].number}.${s.host}:8444"
  }] if local.trips[from][to] != null]])
  # What a region's edges know of other regions without Consul.
  peers = { for from in local.order : from => [for to in local.order : {
    name  = to
    nodes = [for l in local.far : { id = l.id, address = l.listen } if l.from == from && l.to == to]
  } if to == from || local.trips[from][to] != null] }

  # One entry for each process outside the regions.
  globals = merge(
    !var.dns ? {} : {
      dns = {
        command = module.dns_unit.command
        before  = module.dns_unit.before
        # It reads the fleet once, so another fleet needs another process.
        files = { "etc/weir/fleet.yaml" = yamlencode(local.fleet), "etc/weir/dns.env" = "WEIR_DNS_FLAGS=\"${local.dns_flags}\"\n" }
        # Every PoP starts as down; until one is up, clients are sent to all of them.
        ready = "m=$(curl -fsS -m 2 http://${local.dns_address}:9153/metrics) && echo \"$m\" | grep -q '^weir_dns_pop_up{' && ! echo \"$m\" | grep '^weir_dns_pop_up{.* 0$'"
      }
    },
    length(local.far) == 0 ? {} : {
      distance = {
        command = ["${local.bin}/distance", "-listen", local.distance_address, "-links", "${local.dir}/global/distance/links.json"]
        before  = ""
        files   = { "links.json" = jsonencode(local.far) }
        ready   = "curl -fsS -o /dev/null -m 2 http://${local.distance_address}/"
      }
    },
    !var.prometheus ? {} : {
      prometheus = {
        command = [
          "prometheus", "--config.file=${local.dir}/global/prometheus/prometheus.yaml", "--web.listen-address=${local.prometheus_address}",
          "--storage.tsdb.path=${local.dir}/global/prometheus/data", "--storage.tsdb.retention.time=2d", "--storage.tsdb.retention.size=1GB",
        ]
        before = ""
        files  = { "prometheus.yaml" = local.prometheus_config }
        ready  = "curl -fsS -o /dev/null -m 2 http://${local.prometheus_address}/-/ready"
      }
      redis-exporter = {
        # Without its own server: Prometheus names one in each scrape, and learns of a
        # hanging one before the scrape ends.
        command = ["prometheus-redis-exporter", "-web.listen-address=${local.exporter_address}", "-redis.addr=", "-connection-timeout=500ms"]
        before  = ""
        files   = {}
        ready   = "curl -fsS -o /dev/null -m 2 http://${local.exporter_address}/health"
      }
    },
  )
  dns_flags          = "--listen ${local.dns_address}:5300 --metrics ${local.dns_address}:9153 --ttl 2s --key ${local.dir}/global/dns.key"
  dns_address        = "${var.network}.0.53"
  distance_address   = "${var.network}.0.54:8474"
  prometheus_address = "${var.network}.0.90:9090"
  exporter_address   = "${var.network}.0.91:9121"

  processes = concat(flatten([for name in local.order : module.region[name].processes]), [for name in keys(local.globals) : "global/${name}"])

  summary = join("\n", concat(
    [""],
    flatten([for name in local.order : [
      name,
      [for pop, addresses in module.region[name].pops : format("  %-9s %s", pop, join(" ", [for a in addresses : "http://${a}:8080"]))],
      format("  %-9s http://%s:9000", "origin", module.region[name].origin),
      format("  %-9s http://%s:8500", "consul", module.region[name].consul),
      format("  %-9s %s", "redis", join(" ", module.region[name].redis)),
    ]]),
    [for address in [local.dns_address] : "dns         ${address} port 5300, zone ${var.zone}" if var.dns],
    [for address in [local.prometheus_address] : "prometheus  http://${address}" if var.prometheus],
    [
      "",
      "Try:",
      "",
      "  curl -i http://${values(module.region[local.order[0]].pops)[0][0]}:8080/hello",
      "  bin/regionctl --fleet ${local.dir}/fleet.yaml rules status",
      var.dns ? "  dig @${local.dns_address} -p 5300 ${var.zone} +subnet=203.0.113.7/32" : "  make lab-status",
      "",
      "make lab-down ends it.",
      "",
    ],
  ))
}

module "region" {
  source   = "./region"
  for_each = var.regions

  name          = each.key
  prefix        = "${var.network}.${each.value.number}"
  pops          = each.value.pops[*].name
  edges_per_pop = each.value.edges_per_pop
  redis         = var.redis
  peers         = length(local.peers[each.key]) > 1 ? local.peers[each.key] : []
  admin_tls     = var.admin_tls == null ? null : { cert_file = abspath(var.admin_tls.cert_file), key_file = abspath(var.admin_tls.key_file) }
  bin           = local.bin
  consul        = abspath(var.consul)
  scripts       = local.scripts
  environment   = local.environment
}

# Input for regionctl and make lab. The file names are fixed, so that documented commands
# work.
resource "terraform_data" "files" {
  triggers_replace = [yamlencode(local.fleet), yamlencode(local.topology), local.processes, local.summary, jsonencode(local.targets)]

  provisioner "local-exec" {
    command = "${local.scripts}/files.sh"
    environment = merge(local.environment, {
      FLEET     = yamlencode(local.fleet)
      TOPOLOGY  = yamlencode(local.topology)
      REGIONCTL = "${local.bin}/regionctl"
      PROCESSES = join("\n", local.processes)
      SUMMARY   = local.summary
      TARGETS   = join("\n", [for job, groups in local.targets : "${job} ${jsonencode(groups)}"])
    })
  }
}

resource "terraform_data" "wan" {
  triggers_replace = [for name in local.order : "${name}=${module.region[name].consul_ready}"]

  provisioner "local-exec" {
    command     = "${local.scripts}/wan.sh ${join(" ", self.triggers_replace)}"
    environment = merge(local.environment, { CONSUL = abspath(var.consul) })
  }
}

# Initial rules, settings and policy, for regions that have none; and the topology.
resource "terraform_data" "publish" {
  triggers_replace = [terraform_data.files.id, terraform_data.wan.id]

  provisioner "local-exec" {
    command     = "${local.scripts}/publish.sh"
    environment = merge(local.environment, { REGIONCTL = "${local.bin}/regionctl", RULES = abspath(var.rules) })
  }

  depends_on = [module.region]
}

module "dns_unit" {
  source = "./unit"

  file        = "${path.module}/../../deploy/systemd/weir-dns.service"
  root        = "${local.dir}/global/dns"
  programs    = { "/usr/local/bin/regionctl" = "${local.bin}/regionctl" }
  environment = { WEIR_DNS_FLAGS = local.dns_flags }
}

module "global" {
  source   = "./process"
  for_each = local.globals

  name        = "global/${each.key}"
  command     = each.value.command
  before      = each.value.before
  files       = each.value.files
  ready       = each.value.ready
  scripts     = local.scripts
  environment = local.environment

  depends_on = [terraform_data.publish]
}
