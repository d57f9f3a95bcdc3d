output "pops" {
  description = "The addresses of each PoP's edges, by region."
  value       = { for name, r in module.region : name => r.pops }
}

output "summary" {
  description = "The addresses of everything, and commands to try; make lab prints it at the end."
  value       = local.summary
}
