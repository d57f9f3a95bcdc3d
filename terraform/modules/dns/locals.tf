locals {
  name     = "${var.name}-${var.region}-dns"
  tags     = merge(var.tags, { "weir:fleet" = var.name, "weir:region" = var.region })
  dns_port = 53
  # /metrics for Prometheus, /readyz for the load balancer.
  metrics_port = 9153
  # Who may sign a topology.
  keys_file = "/etc/weir/document-keys.pem"
  # With which the routers sign the clients that they move.
  key_file = "/etc/weir/dns.key"

  # Which encrypt the tokens; the region's own is one of them.
  kms_keys = compact([for consul in values(var.consuls) : consul.kms_key_arn])

  secrets = merge({ (local.key_file) = { arn = aws_secretsmanager_secret.key.arn, group = "weir" } }, {
    for region, consul in var.consuls : "/etc/weir/tokens/${region}" => {
      arn    = consul.token_arn
      group  = "weir"
      consul = { addr = consul.addr, server_name = consul.server_name }
      # A router starts while another region is lost.
      needed = region == var.region ? "now" : "later"
    }
  })
}
