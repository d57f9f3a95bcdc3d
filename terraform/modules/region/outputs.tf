output "facts" {
  description = "What the global root has to know of the region, as JSON for aws/global/regions."
  value = {
    pop             = var.pop
    location        = var.location
    capacity        = var.capacity
    clients         = var.clients
    addresses       = [for key in sort(tolist(local.zone_keys)) : aws_eip.lb[key].public_ip]
    listener        = { dns_name = aws_lb.edge.dns_name, zone_id = aws_lb.edge.zone_id, port = local.listener_port }
    vpc_id          = aws_vpc.this.id
    route_table_ids = { for key, table in aws_route_table.private : key => table.id }
    consul          = { addr = "https://${aws_lb.consul.dns_name}:8501", server_name = local.consul_server_name }
    admin_name      = local.edge_admin_name
    token_arn       = aws_secretsmanager_secret.this["dns-token"].arn
    kms_key_arn     = var.kms_key_arn
    bucket          = aws_s3_bucket.nodes.bucket
    routers         = !local.routed ? null : { key = module.dns[0].public_key, role = module.dns[0].role, addresses = [for key in sort(tolist(local.zone_keys)) : aws_eip.dns[key].public_ip] }
  }

  precondition {
    condition     = data.aws_servicequotas_service_quota.this["addresses"].value >= local.addresses_needed
    error_message = "Too few elastic addresses: ${local.aws_region} needs ${local.addresses_needed} and its quota is ${data.aws_servicequotas_service_quota.this["addresses"].value}. Request a higher quota (Service Quotas, ec2, L-0263D0A3), or set nat_gateways or zones."
  }

  precondition {
    condition     = data.aws_servicequotas_service_quota.this["cpus"].value >= local.cpus_needed
    error_message = "Too few CPUs: ${local.aws_region} needs ${local.cpus_needed} at its maximum of edges and its quota is ${data.aws_servicequotas_service_quota.this["cpus"].value}. Request a higher quota (Service Quotas, ec2, L-1216C47A), or set edges.max or smaller instance types."
  }

  precondition {
    condition     = data.aws_servicequotas_service_quota.this["peerings"].value >= local.peers
    error_message = "Too few peerings: ${local.aws_region} needs ${local.peers} and its quota is ${data.aws_servicequotas_service_quota.this["peerings"].value}. Request a higher quota (Service Quotas, vpc, L-7E9ECCDB)."
  }

  # To the peers, the NAT gateway and S3.
  precondition {
    condition     = data.aws_servicequotas_service_quota.this["routes"].value >= local.peers + 2
    error_message = "Too few routes: a table in ${local.aws_region} needs ${local.peers + 2} and its quota is ${data.aws_servicequotas_service_quota.this["routes"].value}. Request a higher quota (Service Quotas, vpc, L-93826ACB)."
  }
}

output "secret_arns" {
  description = "The secrets, by what they hold: regionctl-token and admin-token are for operators."
  value       = merge({ for name, secret in aws_secretsmanager_secret.this : name => secret.arn }, { redis = aws_secretsmanager_secret.redis.arn })
}

output "groups" {
  description = "The autoscaling groups, for upgrade.sh: a line for each, after its AWS region."
  value       = join("", [for group in concat([aws_autoscaling_group.edge.name, aws_autoscaling_group.consul.name], module.dns[*].autoscaling_group) : "${local.aws_region} ${group}\n"])
}
