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

  # What the global root writes there: the tokens and addresses of all regions.
  facts = "${var.facts.bucket}/${var.facts.prefix}"
  secrets = {
    "/etc/weir/ca.pem"       = { arn = var.ca_secret, group = "weir", reload = "weir-dns.service" }
    (local.key_file)         = { arn = aws_secretsmanager_secret.key.arn, group = "weir" }
    "/etc/weir/secrets.more" = { arn = "s3:${var.aws_region}:${local.facts}/secrets.more", group = "root" }
  }
}
