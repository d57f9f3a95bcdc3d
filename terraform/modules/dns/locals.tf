locals {
  name     = "${var.name}-${var.region}-dns"
  tags     = merge(var.tags, { "weir:fleet" = var.name, "weir:region" = var.region })
  dns_port = 53

  secrets = {
    for region, consul in var.consuls : "/etc/weir/tokens/${region}" => { arn = consul.token_arn, group = "weir" }
  }
}
