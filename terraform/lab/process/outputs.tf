output "id" {
  description = "Changes when the process is another one; known once it is ready."
  value       = terraform_data.process.id
}
