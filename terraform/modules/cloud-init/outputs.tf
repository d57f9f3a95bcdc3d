output "text" {
  description = "The cloud-config as text."
  value       = "#cloud-config\n${yamlencode(local.cloud_config)}"
}

output "user_data" {
  description = "The same, compressed and in base64 for a launch template: user data is limited to 16 KiB."
  value       = base64gzip("#cloud-config\n${yamlencode(local.cloud_config)}")
}
