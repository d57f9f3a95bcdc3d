# The targets of the lab's Prometheus, and the labels that dashboards and rules use, as in
# dashboards/prometheus.yaml. Debian's Prometheus is built without Consul discovery, so
# Terraform writes the targets, and Prometheus reloads the files when they change.

locals {
  targets = {
    weir-edge = flatten([for name in local.order : [for node, e in module.region[name].edges : {
      targets = ["${e.address}:8081"], labels = { region = name, pop = e.pop, node = node }
    }]])
    consul = [for name in local.order : { targets = ["${module.region[name].consul}:8500"], labels = { region = name } }]
    # The instance has the name that make lab-status and scripts/signal.sh use.
    redis = flatten([for name in local.order : [for i, address in module.region[name].redis : {
      targets = ["redis://${address}"], labels = { region = name, instance = "${name}/redis-${i + 1}" }
    }]])
    weir-dns = [for address in [local.dns_address] : { targets = ["${address}:9153"], labels = {} } if var.dns]
  }

  scrapes = {
    weir-edge = merge([for t in var.admin_tls[*] : { scheme = "https", tls_config = { ca_file = abspath(t.ca_file), server_name = "weir-edge" } }]...)
    consul    = { metrics_path = "/v1/agent/metrics", params = { format = ["prometheus"] } }
    redis = {
      metrics_path = "/scrape"
      relabel_configs = [
        { source_labels = ["__address__"], target_label = "__param_target" },
        { target_label = "__address__", replacement = local.exporter_address },
      ]
    }
    weir-dns = {}
  }

  prometheus = {
    global = {
      scrape_interval     = "2s"
      evaluation_interval = "5s"
      external_labels     = { grafana_url = "http://127.0.0.1:3000" }
    }
    rule_files = local.rule_files
    scrape_configs = [for job, scrape in local.scrapes : merge(scrape, {
      job_name        = job
      file_sd_configs = [{ files = ["${local.dir}/global/targets/${job}.json"] }]
    })]
  }
  rule_files = [for name in ["recording", "alerts"] : abspath("${path.module}/../../dashboards/rules/${name}.yaml")]

  # Changed rules need a restart.
  prometheus_config = join("\n", concat([for file in local.rule_files : "# ${filemd5(file)}"], [yamlencode(local.prometheus)]))
}
