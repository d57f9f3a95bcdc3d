variable "name" {
  description = "Prefix of resource names; distinguishes fleets in one account."
  type        = string
  default     = "weir"

  validation {
    condition     = can(regex("^[a-z][a-z0-9]{0,7}$", var.name))
    error_message = "name must be 1 to 8 lower-case letters and digits, and begin with a letter."
  }
}

variable "regions" {
  description = "The regions, by their name in weir. Adding or removing an entry adds or removes only that region and its peerings. ami_id is Amazon Linux 2023 for the release's architecture: a new one replaces the instances of that region."
  type = map(object({
    aws_region      = string
    ami_id          = string
    vpc_cidr        = string
    pop             = string
    location        = optional(object({ lat = number, lon = number }))
    clients         = optional(list(string), [])
    capacity        = optional(number)
    upstreams       = list(string)
    certificate_arn = optional(string)
    alarm_topic_arn = optional(string)
    kms_key_arn     = optional(string)
    nat_gateways    = optional(number)
    token_versions  = optional(map(number), {})
    zones           = optional(number, 3)
    zone_names      = optional(list(string))
    policy          = optional(object({ subjects = optional(number) }), {})
    server          = optional(object({ max_connections = optional(number), max_connections_per_client = optional(number) }), {})
    upstream = optional(object({
      upgrade        = optional(list(string))
      tunnel_timeout = optional(string)
      health_check   = optional(object({ path = string, interval = optional(string), timeout = optional(string), healthy = optional(number), unhealthy = optional(number), host = optional(string) }))
    }), {})
    extra_config = optional(string)

    edges  = optional(object({ count = optional(number, 3), max = optional(number), target_cpu = optional(number, 50), instance_type = optional(string, "c7i.large"), admin_tls = optional(bool, false) }), {})
    consul = optional(object({ count = optional(number, 3), instance_type = optional(string, "m7i.large") }), {})
    redis = optional(object({
      node_type     = optional(string, "cache.m7g.large")
      engine        = optional(string, "redis")
      version       = optional(string, "7.1")
      shards        = optional(number, 3)
      replicas      = optional(number, 1)
      rotation_days = optional(number, 30)
      linger        = optional(string, "0s")
    }), {})
  }))

  validation {
    condition     = length(var.regions) >= 1
    error_message = "regions must hold at least one region."
  }

  validation {
    condition     = alltrue([for name in keys(var.regions) : length(name) >= 2 && length(name) <= 16 && can(regex("^[a-z][a-z0-9]*(-[a-z0-9]+)*$", name))])
    error_message = "regions: a name must be 2 to 16 lower-case letters, digits and dashes, begin with a letter, and have no dash at the end and no two in a row."
  }

  validation {
    condition     = alltrue([for r in values(var.regions) : can(cidrnetmask(r.vpc_cidr))])
    error_message = "regions: each vpc_cidr must be an IPv4 network, such as 10.1.0.0/16."
  }

  # Networks overlap exactly if they are equal at the shorter of both prefixes.
  validation {
    condition = alltrue(flatten([
      for a, ra in var.regions : [
        for b, rb in var.regions : a == b || try(
          cidrhost("${cidrhost(ra.vpc_cidr, 0)}/${min(split("/", ra.vpc_cidr)[1], split("/", rb.vpc_cidr)[1])}", 0) !=
          cidrhost("${cidrhost(rb.vpc_cidr, 0)}/${min(split("/", ra.vpc_cidr)[1], split("/", rb.vpc_cidr)[1])}", 0),
          true,
        )
      ]
    ]))
    error_message = "regions: the vpc_cidr of two regions overlap; their VPCs are peered and must not share addresses."
  }

  validation {
    condition     = length(var.regions) <= 51
    error_message = "regions: with more than 51, a VPC would need more than the 50 peerings and routes that AWS allows by default."
  }

  validation {
    condition     = length(distinct([for r in values(var.regions) : r.pop])) == length(var.regions)
    error_message = "regions: two have the same pop; a PoP's name must be unique in the fleet."
  }

  validation {
    condition     = length(distinct([for r in values(var.regions) : r.certificate_arn == null])) <= 1
    error_message = "regions: either all have a certificate_arn or none: DNS sends a client to any of them."
  }
}

variable "fleet_cidr" {
  description = "A network that contains the vpc_cidr of every region and nothing else. Security rules then name it in place of each region, so that adding one changes none elsewhere. Required from 19 regions on."
  type        = string
  default     = null

  validation {
    condition     = var.fleet_cidr == null || try(alltrue([for r in values(var.regions) : split("/", r.vpc_cidr)[1] >= split("/", var.fleet_cidr)[1] && cidrhost("${cidrhost(r.vpc_cidr, 0)}/${split("/", var.fleet_cidr)[1]}", 0) == cidrhost(var.fleet_cidr, 0)]), false)
    error_message = "fleet_cidr must be an IPv4 network that contains the vpc_cidr of every region, such as 10.0.0.0/10."
  }

  # Of Consul's servers: 9, and 3 for each peer. Of routers: 2 for each region, and 3. Of edges: 6, and 1 for each network.
  validation {
    condition     = var.fleet_cidr != null || max(9 + 3 * (length(var.regions) - 1), 2 * length(var.regions) + 3, length(var.regions) + length(var.operator_cidrs) + 6) <= 60
    error_message = "fleet_cidr: without it, a security group would need more than the 60 rules that AWS allows by default. Set it, or name fewer operator_cidrs."
  }
}

variable "release" {
  description = "The programs: a gzipped tar file in S3 with edge, regionctl and consul in it, its SHA-256, and for each AWS region the bucket there that holds it, since an instance depends on no other region. releases replaces key and sha256 in some regions."
  type = object({
    buckets = map(string)
    key     = string
    sha256  = string
  })

  validation {
    condition     = alltrue([for r in values(var.regions) : contains(keys(var.release.buckets), r.aws_region)]) && length(distinct(values(var.release.buckets))) == length(var.release.buckets)
    error_message = "release.buckets must name a bucket of its own for every AWS region of regions: instances there must start while another region is lost."
  }

  validation {
    condition     = alltrue([for release in concat([var.release], values(var.releases)) : can(regex("^[0-9a-f]{64}$", release.sha256))])
    error_message = "release.sha256 must be 64 hexadecimal digits in lower case, as sha256sum prints them."
  }
}

variable "releases" {
  description = "Regions whose release is another than release, by their name. upgrade.sh writes it."
  type        = map(object({ key = string, sha256 = string }))
  default     = {}

  validation {
    condition     = length(setsubtract(keys(var.releases), keys(var.regions))) == 0
    error_message = "releases: each name must be one of regions. Correct it, or remove it from releases.auto.tfvars."
  }
}

variable "request_certificates" {
  description = "Request a certificate for the zone from ACM in every region, validated by DNS, in place of certificate_arn. At each renewal ACM looks for the record in output topology."
  type        = bool
  default     = false

  validation {
    condition     = !var.request_certificates || alltrue([for r in values(var.regions) : r.certificate_arn == null])
    error_message = "request_certificates: remove certificate_arn from the regions."
  }
}

variable "operator_cidrs" {
  description = "Networks from which regionctl may reach Consul and the edges' admin side, and Prometheus the metrics of edges and routers, such as that of a VPN."
  type        = list(string)
  default     = []

  validation {
    condition     = alltrue([for cidr in var.operator_cidrs : can(cidrnetmask(cidr)) && try(tonumber(split("/", cidr)[1]) >= 8, false)])
    error_message = "operator_cidrs must be IPv4 networks of /8 or smaller, such as 10.200.0.0/24: the admin side must not be public."
  }
}

variable "dns" {
  description = "How a client finds the nearest PoP: mode route53 (latency records with health checks, in the hosted zone) or regionctl (the zone is delegated from the hosted zone to regionctl dns in every region). health_path is the path that Route 53 requests, and that routers probe: the origin must answer it with 2xx or 3xx. geoip_key is the key of a GeoIP database in the bucket of every region (release.buckets), for routers. steering says who decides where clients go in mode regionctl unless every region has client networks: geoip, the distance, with geoip_key and locations; or first, to send all other clients to the first region. delegate = false keeps the latency records in mode regionctl: routers start, but the zone is delegated to them only once delegate is true, the default. regions names those that run routers, at most 8; null: all."
  type = object({
    mode           = string
    zone           = string
    hosted_zone_id = string
    ttl            = optional(number, 20)
    health_path    = optional(string, "/")
    steering       = optional(string)
    geoip_key      = optional(string)
    delegate       = optional(bool, true)
    regions        = optional(list(string))
    nodes          = optional(object({ count = optional(number, 2), instance_type = optional(string, "t3.small") }), {})
  })

  validation {
    condition     = contains(["route53", "regionctl"], var.dns.mode)
    error_message = "dns.mode must be route53 or regionctl."
  }

  validation {
    condition     = can(regex("^([a-z0-9]([a-z0-9-]*[a-z0-9])?\\.)+[a-z]{2,}$", var.dns.zone))
    error_message = "dns.zone must be a domain name in lower case without the last dot, such as edge.example.com."
  }

  validation {
    condition     = can(regex("^Z[A-Z0-9]+$", var.dns.hosted_zone_id))
    error_message = "dns.hosted_zone_id must be the id of a Route 53 zone, such as Z0123456789ABCDEFGHIJ."
  }

  validation {
    condition     = var.dns.ttl >= 1 && var.dns.ttl <= 3600 && startswith(var.dns.health_path, "/")
    error_message = "dns.ttl must be 1 to 3600 seconds, and dns.health_path begin with /."
  }

  validation {
    condition     = var.dns.mode == "route53" || length(var.regions) < 2 || contains(["geoip", "first"], coalesce(var.dns.steering, "clients")) || alltrue([for r in var.regions : length(r.clients) > 0])
    error_message = "dns: nothing distinguishes clients, so all that have no region would go to the first. Give every region clients, or set dns.steering to geoip or first."
  }

  validation {
    condition     = var.dns.mode == "route53" || length(coalesce(var.dns.regions, keys(var.regions))) <= 8 && alltrue([for name in coalesce(var.dns.regions, []) : contains(keys(var.regions), name)])
    error_message = "dns.regions must name at most 8 of regions, such as 4: resolvers try name servers in turn, and more than 8 with their addresses do not fit into an answer."
  }

  validation {
    condition     = var.dns.steering != "geoip" || var.dns.geoip_key != null && length([for r in var.regions : r if r.location != null]) > 1
    error_message = "dns.steering geoip needs dns.geoip_key, the database in every bucket of release.buckets, and the location of at least two regions."
  }
}

variable "verify_keys" {
  description = "The public keys, in PEM, of everyone who may publish. Edges verify rules and shedder settings with them, routers the topology; both report documents without a valid signature. Never put a private key here."
  type        = list(string)
  default     = []

  validation {
    condition     = length(var.verify_keys) <= 20 && alltrue([for text in var.verify_keys : can(regex("^(-----BEGIN PUBLIC KEY-----\\r?\\nMCowBQYDK2VwAyEA[A-Za-z0-9+/]{43}=\\r?\\n-----END PUBLIC KEY-----\\s*)+$", text))])
    error_message = "verify_keys must be at most 20 Ed25519 public keys in PEM, as regionctl keys generate writes them to KEYFILE.pub; never a private key."
  }
}

variable "require_signed" {
  description = "Edges refuse rules and shedder settings, and routers a topology, without a signature by one of verify_keys. Sign the active documents first: see README.md."
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
