variable "fleet" {
  description = "What all regions share, as aws/settings.yaml has it. Here a region of the map is only a name, an AWS region and a network: another one changes no instance."
  type = object({
    name                 = optional(string, "weir")
    cidr                 = string
    regions              = map(object({ aws_region = string, vpc_cidr = string }))
    operator_cidrs       = optional(list(string), [])
    verify_keys          = optional(list(string), [])
    require_signed       = optional(bool, false)
    request_certificates = optional(bool, false)
    ssm                  = optional(bool, false)
    log_days             = optional(number)
    tags                 = optional(map(string), {})
    dns = object({
      mode      = string
      zone      = string
      ttl       = optional(number, 20)
      geoip_key = optional(string)
      regions   = optional(list(string))
    })
  })

  # The rest is checked by modules/global, which is applied first.
  validation {
    condition     = length(var.fleet.verify_keys) <= 20 && alltrue([for text in var.fleet.verify_keys : can(regex("^(-----BEGIN PUBLIC KEY-----\\r?\\nMCowBQYDK2VwAyEA[A-Za-z0-9+/]{43}=\\r?\\n-----END PUBLIC KEY-----\\s*)+$", text))])
    error_message = "fleet.verify_keys must be at most 20 Ed25519 public keys in PEM, as regionctl keys generate writes them to KEYFILE.pub; never a private key."
  }

  validation {
    condition     = !var.fleet.require_signed || length(var.fleet.verify_keys) > 0
    error_message = "fleet.require_signed needs verify_keys: without a key, no document could be accepted. Add the public keys of all who publish."
  }

  validation {
    condition     = alltrue([for cidr in concat([var.fleet.cidr], var.fleet.operator_cidrs) : can(cidrnetmask(cidr)) && try(tonumber(split("/", cidr)[1]) >= 8, false)])
    error_message = "fleet: cidr and operator_cidrs must be IPv4 networks of /8 or smaller, such as 10.200.0.0/24: the admin side must not be public."
  }
}

variable "region" {
  description = "The name of this region in fleet.regions: node.region of its edges, and its Consul datacenter."
  type        = string

  validation {
    condition     = contains(keys(var.fleet.regions), var.region)
    error_message = "region must be one of fleet.regions."
  }
}

variable "pop" {
  description = "The name in weir of the PoP behind the load balancer."
  type        = string

  validation {
    condition     = can(regex("^[a-z0-9][a-z0-9-]{0,62}$", var.pop))
    error_message = "pop must be lower-case letters, digits and dashes, at most 63."
  }
}

variable "location" {
  description = "Where the PoP is, for steering by distance. Null: unknown."
  type        = object({ lat = number, lon = number })
  default     = null
}

variable "clients" {
  description = "Networks whose clients belong here first."
  type        = list(string)
  default     = []

  validation {
    condition     = alltrue([for cidr in var.clients : can(cidrhost(cidr, 0))])
    error_message = "clients must be networks, such as 198.51.100.0/24."
  }
}

variable "capacity" {
  description = "Requests per second that the PoP serves with all of its edges; DNS moves the rest. Null: unknown."
  type        = number
  default     = null

  validation {
    condition     = coalesce(var.capacity, 1) > 0
    error_message = "capacity must be positive, or null."
  }
}

variable "zones" {
  description = "The number of availability zones."
  type        = number
  default     = 3

  validation {
    condition     = contains([2, 3], var.zones)
    error_message = "zones must be 2 or 3: with one zone, losing it loses the region."
  }
}

variable "zone_names" {
  description = "The availability zones, such as eu-west-1a, as many as zones. Null: AWS's first, which may change when AWS adds one, and every subnet with it."
  type        = list(string)
  default     = null

  validation {
    condition     = var.zone_names == null || try(length(distinct(var.zone_names)) == var.zones, false)
    error_message = "zone_names must be as many different zones as zones says."
  }
}

variable "release" {
  description = "The programs: a gzipped tar file with edge, regionctl and consul in it, in a bucket of the same AWS region, and its SHA-256."
  type        = object({ bucket = string, key = string, sha256 = string })

  validation {
    condition     = can(regex("^[0-9a-f]{64}$", var.release.sha256))
    error_message = "release.sha256 must be 64 hexadecimal digits in lower case, as sha256sum prints them."
  }
}

variable "ami_id" {
  description = "The AMI: Amazon Linux 2023 for the release's architecture. A new one replaces the instances."
  type        = string

  validation {
    condition     = startswith(var.ami_id, "ami-")
    error_message = "ami_id must begin with ami-."
  }
}

variable "edges" {
  description = "The minimum and maximum number of edge nodes (max: twice count), the average CPU in percent that target tracking aims at, and their type."
  type = object({
    count         = optional(number, 3)
    max           = optional(number)
    target_cpu    = optional(number, 50)
    instance_type = optional(string, "c7i.large")
  })
  default = {}

  validation {
    condition     = var.edges.count >= 2 && var.edges.count <= 100 && floor(var.edges.count) == var.edges.count
    error_message = "edges.count must be a whole number from 2 to 100: a single edge cannot be replaced without a gap."
  }

  validation {
    condition     = coalesce(var.edges.max, var.edges.count) >= var.edges.count && var.edges.target_cpu >= 10 && var.edges.target_cpu <= 90
    error_message = "edges.max must not be below edges.count, and edges.target_cpu must be 10 to 90."
  }
}

variable "token_versions" {
  description = "Raise a number to replace that token: agent, edge, regionctl, dns, admin, or nodes for the tokens of all edges; initially 1. Consul accepts the previous one until the next replacement."
  type        = map(number)
  default     = {}

  validation {
    condition     = alltrue([for name, version in var.token_versions : contains(["agent", "edge", "regionctl", "dns", "admin", "nodes"], name) && version >= 1])
    error_message = "token_versions: a name is agent, edge, regionctl, dns, admin or nodes, and a number at least 1."
  }
}

variable "nat_gateways" {
  description = "The number of NAT gateways, each with an elastic address. Null: one in each zone. With fewer, losing a zone may cut off another zone's edges from origins outside the VPC."
  type        = number
  default     = null

  validation {
    condition     = var.nat_gateways == null || try(var.nat_gateways >= 1 && var.nat_gateways <= var.zones, false)
    error_message = "nat_gateways must be 1 to zones, or null."
  }
}

variable "consul" {
  description = "The number and type of Consul servers."
  type = object({
    count         = optional(number, 3)
    instance_type = optional(string, "m7i.large")
  })
  default = {}

  validation {
    condition     = contains([3, 5], var.consul.count)
    error_message = "consul.count must be 3 or 5: an even number survives no more losses."
  }
}

variable "routers" {
  description = "The number and type of DNS routers, in a region that runs them (fleet.dns)."
  type = object({
    count         = optional(number, 2)
    instance_type = optional(string, "t3.small")
  })
  default = {}

  validation {
    condition     = var.routers.count >= 2 && var.routers.count <= 20 && floor(var.routers.count) == var.routers.count
    error_message = "routers.count must be a whole number from 2 to 20: a single router cannot be replaced without a gap."
  }
}

variable "redis" {
  description = "The Redis Cluster: node type, engine (redis with version 7.1, or valkey with version 8.0), shards, replicas of each, and days between rotations of the AUTH token. The previous token stays valid until the next rotation."
  type = object({
    node_type     = optional(string, "cache.m7g.large")
    engine        = optional(string, "redis")
    version       = optional(string, "7.1")
    shards        = optional(number, 3)
    replicas      = optional(number, 1)
    rotation_days = optional(number, 30)
  })
  default = {}

  validation {
    condition     = var.redis.shards >= 1 && var.redis.shards <= 90 && var.redis.replicas >= 1 && var.redis.replicas <= 5
    error_message = "redis.shards must be 1 to 90 and redis.replicas 1 to 5: without a replica, a dying shard takes its counts with it."
  }

  validation {
    condition     = contains(["redis", "valkey"], var.redis.engine)
    error_message = "redis.engine must be redis or valkey."
  }

  validation {
    condition     = startswith(var.redis.version, var.redis.engine == "valkey" ? "8." : "7.")
    error_message = "redis.version must be 7.x with redis, or 8.x with valkey."
  }

  validation {
    condition     = var.redis.rotation_days >= 1 && var.redis.rotation_days <= 365
    error_message = "redis.rotation_days must be 1 to 365."
  }
}

variable "upstreams" {
  description = "The origins, as the edge's upstreams[].url: scheme, host and port."
  type        = list(string)

  validation {
    condition     = length(var.upstreams) >= 1 && length(var.upstreams) <= 64 && alltrue([for url in var.upstreams : can(regex("^https?://[^/:@]+(:[0-9]{1,5})?$", url))])
    error_message = "upstreams must be 1 to 64 URLs such as https://origin.example.com or http://10.0.0.9:8080, without a path."
  }
}

variable "kms_key_arn" {
  description = "The KMS key, in aws_region, that encrypts disks, secrets and Redis. Null: AWS's own keys."
  type        = string
  default     = null

  validation {
    condition     = var.kms_key_arn == null || can(regex("^arn:[a-z-]+:kms:", var.kms_key_arn))
    error_message = "kms_key_arn must be the ARN of a KMS key, or null."
  }
}

variable "extra_config" {
  description = "Further settings of the edges, as docs/CONFIG.md has them, in YAML. They are added to those that are there, down to the second level, and win. Null: none."
  type        = string
  default     = null

  validation {
    condition     = var.extra_config == null || can(keys(yamldecode(var.extra_config)))
    error_message = "extra_config must be YAML whose keys are sections of the edge's configuration, such as \"recent: {keep: 1000}\"."
  }
}

variable "alarm_topic_arn" {
  description = "The SNS topic, in aws_region, that alarms notify. Null: none."
  type        = string
  default     = null

  validation {
    condition     = var.alarm_topic_arn == null || can(regex("^arn:[a-z-]+:sns:", var.alarm_topic_arn))
    error_message = "alarm_topic_arn must be the ARN of an SNS topic, or null."
  }
}

variable "certificate_arn" {
  description = "The certificate for port 443: of ACM, for the load balancer, behind which edges speak HTTP/1.1 without TLS; or a secret of Secrets Manager with a PEM chain and its key, for the edges, which then also speak HTTP/2. Either in the region's AWS region. Null: that of fleet.request_certificates, or plain TCP on port 80."
  type        = string
  default     = null

  validation {
    condition     = var.certificate_arn == null || can(regex("^arn:[a-z-]+:(acm|secretsmanager):", var.certificate_arn))
    error_message = "certificate_arn must be the ARN of an ACM certificate or of a secret, or null."
  }
}
