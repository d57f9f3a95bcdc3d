variable "name" {
  description = "The name of the region, and of its Consul datacenter."
  type        = string
}

variable "prefix" {
  description = "The first three parts of the addresses of the region."
  type        = string
}

variable "pops" {
  description = "The names of the PoPs."
  type        = list(string)
}

variable "edges_per_pop" {
  description = "The number of edges in each PoP."
  type        = number
}

variable "redis" {
  description = "The number of masters in the Redis Cluster, and of replicas for each."
  type        = object({ masters = number, replicas = number })
}

variable "peers" {
  description = "All regions that are not found by Consul alone, this one included, with the proxies that lead to their edges. Empty: Consul knows all."
  type        = list(object({ name = string, nodes = list(object({ id = string, address = string })) }))
}

variable "admin_tls" {
  description = "Certificate and key of the edges' admin side, null for plain HTTP."
  type        = object({ cert_file = string, key_file = string })
}

variable "bin" {
  description = "The folder of edge and origin."
  type        = string
}

variable "consul" {
  description = "The Consul program."
  type        = string
}

variable "scripts" {
  description = "The folder of the scripts."
  type        = string
}

variable "environment" {
  description = "The environment of every script; LAB is the folder of the lab."
  type        = map(string)
}
