variable "name" {
  description = "Prefix of resource names; distinguishes fleets in one account."
  type        = string
  default     = "weir"

  validation {
    condition     = can(regex("^[a-z][a-z0-9]{0,7}$", var.name))
    error_message = "name must be 1 to 8 lower-case letters and digits, and begin with a letter."
  }
}

variable "region" {
  description = "The name of this region in weir: node.region of its edges, and its Consul datacenter."
  type        = string

  validation {
    condition     = length(var.region) >= 2 && length(var.region) <= 16 && can(regex("^[a-z][a-z0-9]*(-[a-z0-9]+)*$", var.region))
    error_message = "region must be 2 to 16 lower-case letters, digits and dashes, begin with a letter, and have no dash at the end and no two in a row."
  }
}

variable "aws_region" {
  description = "Its AWS region, such as eu-west-1."
  type        = string

  validation {
    condition     = can(regex("^[a-z]{2}(-[a-z]+)+-[0-9]$", var.aws_region))
    error_message = "aws_region must be the name of an AWS region, such as eu-west-1."
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

variable "vpc_cidr" {
  description = "Addresses of the VPC. Regions' addresses must not overlap, because the VPCs are peered."
  type        = string

  validation {
    condition     = can(cidrnetmask(var.vpc_cidr)) && try(tonumber(split("/", var.vpc_cidr)[1]) >= 16 && tonumber(split("/", var.vpc_cidr)[1]) <= 22, false)
    error_message = "vpc_cidr must be an IPv4 network of /16 to /22, such as 10.1.0.0/16."
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

variable "peers" {
  description = "The AWS regions of the other regions, by their name in weir. Their Consul servers are joined over the WAN."
  type        = map(string)
  default     = {}
}

variable "peer_cidrs" {
  description = "The networks of the other regions, or one that contains them all: whose Consul servers and routers may reach those here."
  type        = list(string)
  default     = []

  validation {
    condition     = alltrue([for cidr in var.peer_cidrs : can(cidrnetmask(cidr)) && try(tonumber(split("/", cidr)[1]) >= 8, false)])
    error_message = "peer_cidrs must be IPv4 networks of /8 or smaller, such as 10.2.0.0/16."
  }
}

variable "operator_cidrs" {
  description = "Networks from which regionctl may reach Consul and the edges' admin side, such as that of a VPN."
  type        = list(string)
  default     = []

  validation {
    condition     = alltrue([for cidr in var.operator_cidrs : can(cidrnetmask(cidr)) && try(tonumber(split("/", cidr)[1]) >= 8, false)])
    error_message = "operator_cidrs must be IPv4 networks of /8 or smaller, such as 10.200.0.0/24: the admin side must not be public."
  }
}

variable "release" {
  description = "The programs: a gzipped tar file in S3 with edge, regionctl and consul in it, and its SHA-256."
  type = object({
    bucket = string
    key    = string
    region = string
    sha256 = string
  })

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
  description = "The minimum and maximum number of edge nodes (max: twice count), the average CPU in percent that target tracking aims at, their type, and whether their admin side uses TLS (README.md explains how to change that)."
  type = object({
    count         = optional(number, 3)
    max           = optional(number)
    target_cpu    = optional(number, 50)
    instance_type = optional(string, "c7i.large")
    admin_tls     = optional(bool, false)
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

variable "probe_cidrs" {
  description = "Networks of the DNS routers of all regions. They probe the edges of a region while no Consul reports its state."
  type        = list(string)
  default     = []

  validation {
    condition     = alltrue([for cidr in var.probe_cidrs : can(cidrnetmask(cidr)) && try(tonumber(split("/", cidr)[1]) >= 8, false)])
    error_message = "probe_cidrs must be IPv4 networks of /8 or smaller, such as 10.1.0.0/16."
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

variable "redis" {
  description = "The Redis Cluster: node type, engine (redis with version 7.1, or valkey with version 8.0), shards, replicas of each, days between rotations of the AUTH token, and how long decisions wait to share a round trip (store.redis.linger). The previous token stays valid until the next rotation."
  type = object({
    node_type     = optional(string, "cache.m7g.large")
    engine        = optional(string, "redis")
    version       = optional(string, "7.1")
    shards        = optional(number, 3)
    replicas      = optional(number, 1)
    rotation_days = optional(number, 30)
    linger        = optional(string, "0s")
  })
  default = {}

  validation {
    condition     = var.redis.shards >= 1 && var.redis.shards <= 90 && var.redis.replicas >= 1 && var.redis.replicas <= 5
    error_message = "redis.shards must be 1 to 90 and redis.replicas 1 to 5: without a replica, a dying shard takes its counts with it."
  }

  validation {
    condition     = can(regex("^[0-9]+(us|ms|s)$", var.redis.linger))
    error_message = "redis.linger must be a duration such as 2ms, at most a quarter of store.timeout (25ms)."
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

variable "server" {
  description = "Connection limits of the edges, as in docs/CONFIG.md: connections in total and per client. Null keeps the default."
  type = object({
    max_connections            = optional(number)
    max_connections_per_client = optional(number)
  })
  default = {}

  validation {
    condition     = coalesce(var.server.max_connections, 1) >= 1 && coalesce(var.server.max_connections, 1) <= 500000
    error_message = "server.max_connections must be 1 to 500000: an edge may open twice as many files, at most 1048576."
  }

  validation {
    condition     = coalesce(var.server.max_connections_per_client, 0) >= 0
    error_message = "server.max_connections_per_client must not be negative; 0 for no limit."
  }
}

variable "upstream" {
  description = "Upgrades and health checks of the edges' upstreams, as in docs/CONFIG.md. health_check needs a path. Null keeps the default."
  type = object({
    upgrade        = optional(list(string))
    tunnel_timeout = optional(string)
    health_check = optional(object({
      path      = string
      interval  = optional(string)
      timeout   = optional(string)
      healthy   = optional(number)
      unhealthy = optional(number)
      host      = optional(string)
    }))
  })
  default = {}

  validation {
    condition     = alltrue([for protocol in coalesce(var.upstream.upgrade, []) : can(regex("^[a-zA-Z][a-zA-Z0-9-]*$", protocol)) && !can(regex("^(h2|tls)", lower(protocol)))])
    error_message = "upstream.upgrade must be names of protocols such as websocket; not HTTP/2 (h2c) or TLS, whose requests would pass every rule."
  }

  validation {
    condition     = try(var.upstream.health_check.path, null) == null ? true : startswith(var.upstream.health_check.path, "/")
    error_message = "upstream.health_check.path must begin with /, as in /healthz."
  }

  validation {
    condition = alltrue([
      for duration in [var.upstream.tunnel_timeout, try(var.upstream.health_check.interval, null), try(var.upstream.health_check.timeout, null)] :
      duration == null ? true : can(regex("^([0-9]+(ms|s|m|h))+$", duration))
    ])
    error_message = "upstream: durations are numbers with units, such as 500ms, 5s or 1h30m."
  }
}

variable "policy" {
  description = "How the edges follow the behavior policy that regionctl policy apply publishes, as in docs/CONFIG.md: subjects is how many clients an edge keeps, each in 256 bytes. Null keeps the default."
  type        = object({ subjects = optional(number) })
  default     = {}

  validation {
    condition     = coalesce(var.policy.subjects, 1000) >= 1000 && coalesce(var.policy.subjects, 1000) <= 16777152
    error_message = "policy.subjects must be 1000 to 16777152."
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
  description = "Further settings of the edges, as docs/CONFIG.md has them, in YAML. Each section is added to the one that is there; its settings win. Null: none."
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
  description = "The ACM certificate, in aws_region, of the load balancer's TLS listener on port 443. Null: plain TCP on port 80."
  type        = string
  default     = null

  validation {
    condition     = var.certificate_arn == null || can(regex("^arn:[a-z-]+:acm:", var.certificate_arn))
    error_message = "certificate_arn must be the ARN of an ACM certificate, or null."
  }
}

variable "shedder_secret" {
  description = "The secret that decides which users edges shed, the same in all regions: at least 16 characters."
  type        = string
  sensitive   = true

  validation {
    condition     = length(var.shedder_secret) >= 16
    error_message = "shedder_secret must have at least 16 characters, as openssl rand -hex 32 prints them."
  }
}

variable "gossip_key" {
  description = "Consul's gossip key, the same in all regions: 32 bytes in base64."
  type        = string
  sensitive   = true

  validation {
    condition     = can(regex("^[A-Za-z0-9+/]{43}=$", var.gossip_key))
    error_message = "gossip_key must be 32 bytes in base64, as consul keygen prints them."
  }
}

variable "ca" {
  description = "The authority that certifies Consul's servers, the same in all regions, in PEM."
  type = object({
    certificate = string
    private_key = string
  })
  sensitive = true

  validation {
    condition     = strcontains(var.ca.certificate, "BEGIN CERTIFICATE") && strcontains(var.ca.private_key, "PRIVATE KEY")
    error_message = "ca must hold a certificate and its private key in PEM."
  }
}

variable "verify_keys" {
  description = "The public keys, in PEM, of everyone who may publish. Edges verify rules and shedder settings with them and report documents without a valid signature."
  type        = list(string)
  default     = []

  validation {
    condition     = length(var.verify_keys) <= 20 && alltrue([for text in var.verify_keys : can(regex("^(-----BEGIN PUBLIC KEY-----\\r?\\nMCowBQYDK2VwAyEA[A-Za-z0-9+/]{43}=\\r?\\n-----END PUBLIC KEY-----\\s*)+$", text))])
    error_message = "verify_keys must be at most 20 Ed25519 public keys in PEM, as regionctl keys generate writes them to KEYFILE.pub; never a private key."
  }
}

variable "require_signed" {
  description = "Edges refuse rules and shedder settings without a signature by one of verify_keys."
  type        = bool
  default     = false

  validation {
    condition     = !var.require_signed || length(var.verify_keys) > 0
    error_message = "require_signed needs verify_keys: without a key, no document could be accepted. Add the public keys of all who publish."
  }
}

variable "tags" {
  description = "Tags for every resource, in addition to weir:fleet and weir:region."
  type        = map(string)
  default     = {}

  validation {
    condition     = alltrue([for key in keys(var.tags) : !startswith(lower(key), "aws:")])
    error_message = "tags: AWS reserves keys that begin with aws:."
  }
}
