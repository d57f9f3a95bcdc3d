output "id" {
  description = "Changes with the process; known once it is ready."
  value       = terraform_data.process.id
}
