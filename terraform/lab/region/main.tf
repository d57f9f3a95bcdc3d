# One region: a Consul datacenter, a Redis Cluster, an origin, and the edges of the PoPs.

locals {
  dir    = "${var.environment.LAB}/${var.name}"
  consul = "${var.prefix}.1"
  origin = "${var.prefix}.2"
  redis  = [for i in range(var.redis.masters * (1 + var.redis.replicas)) : "${var.prefix}.${101 + i}"]
  edges = merge([for p, pop in var.pops : {
    for e in range(1, var.edges_per_pop + 1) : "${pop}-${e}" => { pop = pop, address = "${var.prefix}.${10 * (p + 1) + e}" }
  }]...)
}

# The folder goes last when the region goes, with everything left in it.
resource "terraform_data" "folder" {
  input = { name = var.name, scripts = var.scripts, environment = var.environment }

  provisioner "local-exec" {
    when        = destroy
    command     = "${self.output.scripts}/remove.sh ${self.output.name}"
    environment = self.output.environment
  }
}

module "consul_unit" {
  source = "../unit"

  file     = "${path.module}/../../modules/region/files/weir-consul.service"
  root     = "${local.dir}/consul"
  programs = { "/usr/local/bin/consul" = var.consul }
}

module "consul" {
  source = "../process"

  name    = "${var.name}/consul"
  command = module.consul_unit.command
  before  = module.consul_unit.before
  files = { "etc/consul.d/consul.json" = jsonencode({
    server         = true, bootstrap_expect = 1
    datacenter     = var.name, node_name = "${var.name}-consul"
    data_dir       = "${local.dir}/consul/var/lib/consul"
    bind_addr      = local.consul, client_addr = local.consul
    ports          = { http = 8500, https = -1, grpc = -1, grpc_tls = -1, dns = -1, server = 8300, serf_lan = 8301, serf_wan = 8302 }
    gossip_wan     = { gossip_interval = "50ms", probe_interval = "500ms", probe_timeout = "300ms", suspicion_mult = 3 }
    retry_interval = "200ms"
    performance    = { raft_multiplier = 1, leave_drain_time = "100ms" }
    # A killed server will come back, so it stays a member meanwhile.
    autopilot = { cleanup_dead_servers = false }, leave_on_terminate = false
    # All clients of the lab may share one address.
    limits = { http_max_conns_per_client = 10000 }
    # Preallocated, and 64 MB otherwise.
    raft_logstore = { wal = { segment_size_mb = 8 } }
    connect       = { enabled = false }, peering = { enabled = false }
    # For Prometheus; series without updates for this long are forgotten.
    telemetry            = { prometheus_retention_time = "24h", disable_hostname = true }
    disable_update_check = true, log_level = "info"
  }) }
  # A server without a leader answers, but not this request.
  ready       = "curl -fsS -o /dev/null -m 2 'http://${local.consul}:8500/v1/catalog/nodes?consistent'"
  before_stop = "curl -fsS -m 5 -X PUT http://${local.consul}:8500/v1/agent/leave"
  scripts     = var.scripts
  environment = var.environment

  depends_on = [terraform_data.folder]
}

module "redis" {
  source   = "../process"
  for_each = { for i, address in local.redis : i + 1 => address }

  name    = "${var.name}/redis-${each.key}"
  command = ["redis-server", "${local.dir}/redis-${each.key}/redis.conf"]
  # Counters live for a window, so only the node's place in the cluster is kept on disk.
  # Without the announced address, other nodes would know every node as 127.0.0.1. The process
  # title is unchanged: its command line identifies a process.
  files = { "redis.conf" = <<-E
    bind ${each.value}
    bind-source-addr ${each.value}
    port 6379
    protected-mode no
    dir ${local.dir}/redis-${each.key}
    set-proc-title no
    save ""
    appendonly no
    repl-diskless-sync yes
    repl-diskless-sync-delay 0
    cluster-enabled yes
    cluster-config-file nodes.conf
    cluster-node-timeout 2000
    cluster-require-full-coverage no
    cluster-replica-validity-factor 0
    maxmemory 128mb
    maxmemory-policy noeviction
    lazyfree-lazy-expire yes
  E
  }
  ready       = "test \"$(redis-cli -h ${each.value} ping)\" = PONG"
  scripts     = var.scripts
  environment = var.environment

  depends_on = [terraform_data.folder]
}

resource "terraform_data" "cluster" {
  triggers_replace = [var.redis.masters, local.redis, [for r in values(module.redis) : r.id]]

  provisioner "local-exec" {
    command     = "${var.scripts}/cluster.sh ${var.name} ${var.redis.masters} ${join(" ", local.redis)}"
    environment = var.environment
  }
}

module "origin" {
  source = "../process"

  name        = "${var.name}/origin"
  command     = ["${var.bin}/origin", "-listen", "${local.origin}:9000", "-region", var.name]
  ready       = "curl -fsS -o /dev/null -m 2 http://${local.origin}:9000/"
  scripts     = var.scripts
  environment = var.environment

  depends_on = [terraform_data.folder]
}

# By which the edges of all regions know each other.
resource "terraform_data" "certificates" {
  provisioner "local-exec" {
    command     = "${var.scripts}/certs.sh ${var.name}"
    environment = var.environment
  }

  depends_on = [terraform_data.folder]
}

module "edge_unit" {
  source   = "../unit"
  for_each = local.edges

  file     = "${path.module}/../../../deploy/systemd/weir-edge.service"
  root     = "${local.dir}/edge-${each.key}"
  programs = { "/usr/local/bin/edge" = "${var.bin}/edge" }
}

module "edge" {
  source   = "../process"
  for_each = local.edges

  name    = "${var.name}/edge-${each.key}"
  command = module.edge_unit[each.key].command
  before  = module.edge_unit[each.key].before
  files = { "etc/weir/edge.yaml" = yamlencode(merge({
    node = { id = "${var.name}-${each.key}", region = var.name, pop = each.value.pop }
    listen = {
      public = "${each.value.address}:8080", admin = "${each.value.address}:8081", admin_tls = var.admin_tls
      peer = { address = "${each.value.address}:8444", tls = {
        cert_file = "${local.dir}/peer/edge.crt", key_file = "${local.dir}/peer/edge.key", ca_file = "${var.environment.LAB}/authority/ca.crt"
      } }
    }
    upstreams = [{ url = "http://${local.origin}:9000" }]
    # One address may speak for others, so that curl can test limits.
    trusted_proxies = ["127.0.0.1/32"]
    # Some forty processes share the processors, so Redis may wait for one longer than the
    # default of 25 ms, and an edge deciding without it counts separately. The number of edges
    # is known here: an edge that has to ask Consul uses the whole limit until it has an
    # answer.
    store  = { kind = "redis", timeout = "500ms", nodes = length(local.edges), redis = { mode = "cluster", addrs = [for a in local.redis : "${a}:6379"] } }
    rules  = { source = "consul", cache = "${local.dir}/edge-${each.key}/var/lib/weir/rules.json" }
    policy = { source = "consul" }
    # So that the console can show a client's requests and try rules on them: 5 MB for each edge.
    recent = { keep = 10000 }
    consul = { addr = "${local.consul}:8500", datacenter = var.name }
    }, length(var.peers) == 0 ? {} : {
    # Regions without nodes here are looked up in Consul.
    peer = { regions = [for p in var.peers : merge({ name = p.name }, length(p.nodes) == 0 ? {} : { nodes = p.nodes })] }
  })) }
  # Not readyz: it waits for rules, which are published once edges run.
  ready       = "curl -kfsS -o /dev/null -m 2 ${var.admin_tls == null ? "http" : "https"}://${each.value.address}:8081/healthz"
  scripts     = var.scripts
  environment = var.environment

  depends_on = [module.consul, module.origin, terraform_data.cluster, terraform_data.certificates]
}
