output "role_arn" {
  description = "The role of the routers."
  value       = aws_iam_role.node.arn
}

output "autoscaling_group" {
  description = "The autoscaling group of the routers, for instance refreshes."
  value       = aws_autoscaling_group.node.name
}

output "load_balancer" {
  description = "The DNS name of the load balancer in front of the routers."
  value       = aws_lb.dns.dns_name
}

output "public_key" {
  description = "The routers' public key, as routers in the topology has it."
  value       = trimspace(trimsuffix(trimprefix(trimspace(tls_private_key.router.public_key_pem), "-----BEGIN PUBLIC KEY-----"), "-----END PUBLIC KEY-----"))
}
