output "role" {
  description = "The name of the routers' role."
  value       = aws_iam_role.node.name
}

output "autoscaling_group" {
  description = "The autoscaling group of the routers, for instance refreshes."
  value       = aws_autoscaling_group.node.name
}

output "public_key" {
  description = "The routers' public key, as routers in the topology has it."
  value       = trimspace(trimsuffix(trimprefix(trimspace(tls_private_key.router.public_key_pem), "-----BEGIN PUBLIC KEY-----"), "-----END PUBLIC KEY-----"))
}
