variable "regions" {
  description = "The regions, by name; terraform.tfvars has the three of make lab. number (1 to 250) is the third part of a region's addresses and never changes while the region stands; regions are listed in its order. Each PoP has edges_per_pop edges; location, weight, clients and capacity are written to the topology."
  type = map(object({
    number        = number
    edges_per_pop = optional(number, 2)
    pops = list(object({
      name     = string
      location = optional(object({ lat = number, lon = number }))
      weight   = optional(number)
      clients  = optional(list(string), [])
      capacity = optional(number)
    }))
  }))

  validation {
    condition     = length(var.regions) > 0
    error_message = "Name at least one region; make lab-down removes all of them."
  }
  validation {
    condition     = alltrue([for name in keys(var.regions) : can(regex("^[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?$", name)) && name != "global"])
    error_message = "The name of a region consists of lower-case letters, digits and hyphens, at most 32, and is not global."
  }
  validation {
    condition     = alltrue([for r in values(var.regions) : r.number >= 1 && r.number <= 250 && floor(r.number) == r.number])
    error_message = "The number of a region is a whole number from 1 to 250."
  }
  validation {
    condition     = length(distinct([for r in values(var.regions) : r.number])) == length(var.regions)
    error_message = "Two regions have the same number; each needs its own addresses."
  }
  validation {
    condition     = alltrue([for r in values(var.regions) : r.edges_per_pop >= 1 && r.edges_per_pop <= 9 && floor(r.edges_per_pop) == r.edges_per_pop])
    error_message = "edges_per_pop is a whole number from 1 to 9."
  }
  validation {
    condition     = alltrue([for r in values(var.regions) : length(r.pops) >= 1 && length(r.pops) <= 8])
    error_message = "A region has 1 to 8 PoPs."
  }
  validation {
    condition     = alltrue(flatten([for r in values(var.regions) : [for p in r.pops : can(regex("^[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?$", p.name))]]))
    error_message = "The name of a PoP consists of lower-case letters, digits and hyphens, at most 32."
  }
  validation {
    condition     = length(distinct(flatten([for r in values(var.regions) : r.pops[*].name]))) == length(flatten([for r in values(var.regions) : r.pops[*].name]))
    error_message = "Two PoPs have the same name; names are unique over all regions."
  }
}

variable "round_trips" {
  description = "Round-trip times between regions: proxies delay messages between the edges of two regions by ms milliseconds per round trip. Pairs that are not listed are connected directly. The edges of both restart when either's PoPs or edges change."
  type        = list(object({ between = list(string), ms = number }))
  default     = []

  validation {
    condition     = alltrue([for t in var.round_trips : length(distinct(t.between)) == 2 && t.ms >= 0 && t.ms <= 10000])
    error_message = "A round trip is between two regions, and takes 0 to 10000 ms."
  }
  validation {
    condition     = length(distinct([for t in var.round_trips : join(" ", sort(t.between))])) == length(var.round_trips)
    error_message = "Two round trips are between the same regions; keep one of them."
  }
}

variable "redis" {
  description = "The Redis Cluster of each region: masters (3), and replicas of each (1). Masters cannot change while the lab stands; replicas can."
  type = object({
    masters  = optional(number, 3)
    replicas = optional(number, 1)
  })
  default = {}

  validation {
    condition     = var.redis.masters >= 3 && var.redis.masters <= 16
    error_message = "A Redis Cluster needs 3 masters to agree that one is lost; 16 are enough for one machine."
  }
  validation {
    condition     = var.redis.replicas >= 0 && var.redis.replicas <= 3
    error_message = "A master has 0 to 3 replicas."
  }
}

variable "network" {
  description = "The first two parts of all addresses. A second lab on this machine needs a different value, and its own LAB_DIR."
  type        = string
  default     = "127.1"

  validation {
    condition     = can(regex("^127\\.(25[0-5]|2[0-4][0-9]|1?[0-9]?[0-9])$", var.network))
    error_message = "All addresses of the lab are loopback addresses: 127.0 to 127.255."
  }
}

variable "zone" {
  description = "The topology's zone, for which the DNS router answers."
  type        = string
  default     = "edge.lab.test"

  validation {
    condition     = can(regex("^([a-z0-9]([a-z0-9-]*[a-z0-9])?\\.)*[a-z0-9]([a-z0-9-]*[a-z0-9])?$", var.zone))
    error_message = "The zone is a domain name in lower case, without a dot at its end."
  }
}

variable "dns" {
  description = "Run the DNS router."
  type        = bool
  default     = true
}

variable "prometheus" {
  description = "Run Prometheus with the rules of dashboards/, and the Redis exporter."
  type        = bool
  default     = true
}

variable "rules" {
  description = "The first rules, as a file. While one of them has scope global, edges of all regions exchange their counts ten times per second."
  type        = string
  default     = "rules.yaml"
}

variable "admin_tls" {
  description = "Certificate, key and authority of the edges' admin side, in PEM files; the certificate is for the name weir-edge. Null: plain HTTP."
  type        = object({ cert_file = string, key_file = string, ca_file = string })
  default     = null
}

variable "dir" {
  description = "The folder for all files of the lab. make lab passes it."
  type        = string
  default     = "../../.lab"
}

variable "bin" {
  description = "The folder of edge, regionctl and origin. make lab passes it."
  type        = string
  default     = "../../bin"
}

variable "consul" {
  description = "The Consul program. make lab passes it."
  type        = string
  default     = "../../.bin/consul"
}
