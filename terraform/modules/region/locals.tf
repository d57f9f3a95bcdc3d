locals {
  name = "${var.name}-${var.region}"
  tags = merge(var.tags, { "weir:fleet" = var.name, "weir:region" = var.region })

  # At most, with target tracking.
  edges_max = coalesce(var.edges.max, 2 * var.edges.count)

  edge_port     = 8080
  admin_port    = 8081
  redis_port    = 6379
  listener_port = var.certificate_arn == null ? 80 : 443

  # Seconds in which the load balancer stops sending a terminating edge new connections.
  deregistration_delay = 120

  # By which Consul finds its servers, here and in the other regions.
  join_tag = "weir:consul"
  retry_join = [
    "provider=aws region=${var.aws_region} tag_key=${local.join_tag} tag_value=${local.name} addr_type=private_v4",
  ]
  retry_join_wan = [
    for region in sort(keys(var.peers)) :
    "provider=aws region=${var.peers[region]} tag_key=${local.join_tag} tag_value=${var.name}-${region} addr_type=private_v4"
  ]

  # Who may sign documents, as the edges read it.
  keys_file = "/etc/weir/document-keys.pem"

  consul_server_name = "server.${var.region}.consul"
  edge_admin_name    = "edge-admin.${var.region}.weir"

  # What is null is left to the edge's defaults.
  upstream = {
    for field, value in merge(var.upstream, {
      health_check = var.upstream.health_check == null ? null : { for field, value in var.upstream.health_check : field => value if value != null }
    }) : field => value if value != null
  }
}
