output "consul" {
  description = "The address of Consul."
  value       = local.consul
}

output "consul_ready" {
  description = "The same, known once Consul takes writes."
  value       = local.consul
  depends_on  = [module.consul]
}

output "origin" {
  description = "The address of the origin."
  value       = local.origin
}

output "redis" {
  description = "The nodes of the Redis Cluster as host:port, masters first."
  value       = [for a in local.redis : "${a}:6379"]
}

output "pops" {
  description = "The addresses of each PoP's edges."
  value       = { for pop in var.pops : pop => [for e in values(local.edges) : e.address if e.pop == pop] }
}

output "edges" {
  description = "The PoP and the address of each edge, by the id of its node."
  value       = { for name, e in local.edges : "${var.name}-${name}" => e }
}

output "processes" {
  description = "The names of the processes."
  value       = concat(["${var.name}/consul", "${var.name}/origin"], [for i in range(length(local.redis)) : "${var.name}/redis-${i + 1}"], [for name in keys(local.edges) : "${var.name}/edge-${name}"])
}
