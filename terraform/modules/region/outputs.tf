output "vpc_id" {
  description = "The VPC."
  value       = aws_vpc.this.id
}

output "public_subnet_ids" {
  description = "The public subnets, by zone."
  value       = { for key, subnet in aws_subnet.public : key => subnet.id }

  # AWS refuses a public load balancer where no internet gateway is yet.
  depends_on = [aws_route.internet, aws_route_table_association.public]
}

output "private_subnet_ids" {
  description = "The private subnets, by zone."
  value       = { for key, subnet in aws_subnet.private : key => subnet.id }

  # An instance needs them from its first second.
  depends_on = [aws_route.nat, aws_route_table_association.private, aws_vpc_endpoint.s3]
}

output "route_table_ids" {
  description = "The route tables of the private subnets, by zone, for the routes to peers."
  value       = { for key, table in aws_route_table.private : key => table.id }
}

output "addresses" {
  description = "The PoP's public addresses, one in each zone."
  value       = [for key in sort(tolist(local.zone_keys)) : aws_eip.lb[key].public_ip]
}

output "listener" {
  description = "The load balancer for Route 53 and clients: DNS name, zone, port, and whether it uses TLS."
  value = {
    dns_name = aws_lb.edge.dns_name
    zone_id  = aws_lb.edge.zone_id
    port     = local.listener_port
    tls      = var.certificate_arn != null
  }
}

output "edge_port" {
  description = "The port of the edges behind the load balancer."
  value       = local.edge_port
}

output "consul" {
  description = "Consul for regionctl: address, datacenter, and the name in its servers' certificate."
  value = {
    addr        = "https://${aws_lb.consul.dns_name}:8501"
    datacenter  = var.region
    server_name = local.consul_server_name
  }
}

output "edge_admin_name" {
  description = "The name in the certificate of the edges' admin side, null without TLS."
  value       = var.edges.admin_tls ? local.edge_admin_name : null
}

output "redis_endpoint" {
  description = "The configuration endpoint of Redis."
  value       = "${aws_elasticache_replication_group.this.configuration_endpoint_address}:${local.redis_port}"
}

output "secret_arns" {
  description = "The secrets, by what they hold."
  value       = merge({ for name, secret in aws_secretsmanager_secret.this : name => secret.arn }, { redis = aws_secretsmanager_secret.redis.arn })

  # Who reads one expects a value.
  depends_on = [aws_secretsmanager_secret_version.key, aws_secretsmanager_secret_version.token, aws_secretsmanager_secret_version.redis]
}

output "role_arns" {
  description = "The roles of the instances, by what runs on them."
  value       = { for name, role in aws_iam_role.instance : name => role.arn }
}

output "autoscaling_groups" {
  description = "The autoscaling groups, by what runs in them, for instance refreshes."
  value       = { edge = aws_autoscaling_group.edge.name, consul = aws_autoscaling_group.consul.name }
}
