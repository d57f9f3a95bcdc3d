variable "fleet" {
  description = "What all regions share, as aws/settings.yaml has it. home: the AWS region of the secrets that all share; every other one has copies. cidr: a network that contains that of every region and nothing else. regions: by their name in weir. operator_cidrs: networks, such as that of a VPN, from which regionctl may reach Consul and the edges' admin side, and Prometheus the metrics. verify_keys: the public keys, in PEM, of everyone who may publish; never a private key. require_signed: edges and routers refuse documents without a signature by one of them. request_certificates: ACM issues the zone's certificate in every region. ssm: Session Manager may open shells on instances. log_days: how long CloudWatch keeps the instances' logs; null: it gets none. dns.mode: route53 (latency records with health checks, in the hosted zone) or regionctl (the zone is delegated from the hosted zone to regionctl dns). dns.health_path: what Route 53 requests and routers probe: the origin must answer it with 2xx or 3xx. dns.steering: geoip, by distance, with dns.geoip_key (a database in each region's bucket) and locations; or first, to send clients that belong to no region to the first; null if every region has clients. dns.delegate = false: latency records in mode regionctl until the routers answer. dns.regions: those that run routers, at most 8; null: all."
  type = object({
    name                 = optional(string, "weir")
    home                 = string
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
      mode           = string
      zone           = string
      hosted_zone_id = string
      ttl            = optional(number, 20)
      health_path    = optional(string, "/")
      steering       = optional(string)
      geoip_key      = optional(string)
      delegate       = optional(bool, true)
      regions        = optional(list(string))
    })
  })

  validation {
    condition     = can(regex("^[a-z][a-z0-9]{0,7}$", var.fleet.name))
    error_message = "fleet.name must be 1 to 8 lower-case letters and digits, and begin with a letter."
  }

  validation {
    condition     = length(var.fleet.regions) >= 1 && length(var.fleet.regions) <= 51
    error_message = "fleet.regions must hold 1 to 51 regions: with more, a VPC would need more than the 50 peerings that AWS allows by default."
  }

  validation {
    condition     = alltrue([for name in keys(var.fleet.regions) : length(name) >= 2 && length(name) <= 16 && can(regex("^[a-z][a-z0-9]*(-[a-z0-9]+)*$", name)) && name != "fleet"])
    error_message = "fleet.regions: a name must be 2 to 16 lower-case letters, digits and dashes, begin with a letter, have no dash at the end and no two in a row, and not be fleet."
  }

  validation {
    condition     = alltrue([for place in concat([var.fleet.home], values(var.fleet.regions)[*].aws_region) : can(regex("^[a-z]{2}-[a-z]+-[0-9]$", place)) && !startswith(place, "cn-")])
    error_message = "fleet: home and each aws_region must be the name of an AWS region, such as eu-west-1, outside China and GovCloud, whose ARNs differ."
  }

  validation {
    condition     = alltrue([for r in values(var.fleet.regions) : can(cidrnetmask(r.vpc_cidr)) && try(tonumber(split("/", r.vpc_cidr)[1]) >= 16 && tonumber(split("/", r.vpc_cidr)[1]) <= 22, false)])
    error_message = "fleet.regions: each vpc_cidr must be an IPv4 network of /16 to /22, such as 10.1.0.0/16."
  }

  # Networks overlap exactly if they are equal at the shorter of both prefixes.
  validation {
    condition = alltrue(flatten([
      for a, ra in var.fleet.regions : [
        for b, rb in var.fleet.regions : a == b || try(
          cidrhost("${cidrhost(ra.vpc_cidr, 0)}/${min(split("/", ra.vpc_cidr)[1], split("/", rb.vpc_cidr)[1])}", 0) !=
          cidrhost("${cidrhost(rb.vpc_cidr, 0)}/${min(split("/", ra.vpc_cidr)[1], split("/", rb.vpc_cidr)[1])}", 0),
          true,
        )
      ]
    ]))
    error_message = "fleet.regions: the vpc_cidr of two regions overlap; their VPCs are peered and must not share addresses."
  }

  validation {
    condition     = try(alltrue([for r in values(var.fleet.regions) : cidrhost("${cidrhost(r.vpc_cidr, 0)}/${split("/", var.fleet.cidr)[1]}", 0) == cidrhost(var.fleet.cidr, 0)]), false)
    error_message = "fleet.cidr must be an IPv4 network that contains the vpc_cidr of every region, such as 10.0.0.0/10."
  }

  # Of a security group's 60 rules the edges' takes 7 and one for each of these.
  validation {
    condition     = length(var.fleet.operator_cidrs) <= 50 && alltrue([for cidr in concat([var.fleet.cidr], var.fleet.operator_cidrs) : can(cidrnetmask(cidr)) && try(tonumber(split("/", cidr)[1]) >= 8, false)])
    error_message = "fleet: cidr and the operator_cidrs, at most 50, must be IPv4 networks of /8 or smaller, such as 10.200.0.0/24: the admin side must not be public."
  }

  validation {
    condition     = length(var.fleet.verify_keys) <= 20 && alltrue([for text in var.fleet.verify_keys : can(regex("^(-----BEGIN PUBLIC KEY-----\\r?\\nMCowBQYDK2VwAyEA[A-Za-z0-9+/]{43}=\\r?\\n-----END PUBLIC KEY-----\\s*)+$", text))])
    error_message = "fleet.verify_keys must be at most 20 Ed25519 public keys in PEM, as regionctl keys generate writes them to KEYFILE.pub; never a private key."
  }

  validation {
    condition     = !var.fleet.require_signed || length(var.fleet.verify_keys) > 0
    error_message = "fleet.require_signed needs verify_keys: without a key, no document could be accepted. Add the public keys of all who publish."
  }

  validation {
    condition     = contains([1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731], coalesce(var.fleet.log_days, 1))
    error_message = "fleet.log_days must be one of the periods that CloudWatch knows, such as 7, 30, 90 or 365, or null."
  }

  validation {
    condition     = alltrue([for key in keys(var.fleet.tags) : !startswith(lower(key), "aws:")])
    error_message = "fleet.tags: AWS reserves keys that begin with aws:."
  }

  validation {
    condition     = contains(["route53", "regionctl"], var.fleet.dns.mode)
    error_message = "fleet.dns.mode must be route53 or regionctl."
  }

  validation {
    condition     = can(regex("^([a-z0-9]([a-z0-9-]*[a-z0-9])?\\.)+[a-z]{2,}$", var.fleet.dns.zone)) && can(regex("^Z[A-Z0-9]+$", var.fleet.dns.hosted_zone_id))
    error_message = "fleet.dns.zone must be a domain name in lower case without the last dot, such as edge.example.com, and hosted_zone_id the id of a Route 53 zone."
  }

  validation {
    condition     = var.fleet.dns.ttl >= 1 && var.fleet.dns.ttl <= 3600 && startswith(var.fleet.dns.health_path, "/")
    error_message = "fleet.dns.ttl must be 1 to 3600 seconds, and health_path begin with /."
  }

  validation {
    condition     = var.fleet.dns.mode == "route53" || length(coalesce(var.fleet.dns.regions, keys(var.fleet.regions))) <= 8 && alltrue([for name in coalesce(var.fleet.dns.regions, []) : contains(keys(var.fleet.regions), name)])
    error_message = "fleet.dns.regions must name at most 8 of regions, such as 4: resolvers try name servers in turn, and more than 8 with their addresses do not fit into an answer."
  }
}

variable "regions" {
  description = "What each region's root says of itself (output facts), by its name. A region without is not in DNS yet."
  type = map(object({
    pop             = string
    location        = optional(object({ lat = number, lon = number }))
    capacity        = optional(number)
    clients         = optional(list(string), [])
    addresses       = list(string)
    listener        = object({ dns_name = string, zone_id = string, port = number })
    vpc_id          = string
    route_table_ids = map(string)
    consul          = object({ addr = string, server_name = string })
    admin_name      = string
    token_arn       = string
    kms_key_arn     = optional(string)
    bucket          = string
    routers         = optional(object({ key = string, role = string, addresses = list(string) }))
  }))

  validation {
    condition     = length(setsubtract(keys(var.regions), keys(var.fleet.regions))) == 0
    error_message = "regions: each must be one of fleet.regions. Correct its name, or delete its file."
  }

  validation {
    condition     = length(distinct([for r in values(var.regions) : r.pop])) == length(var.regions)
    error_message = "regions: two have the same pop; a PoP's name must be unique in the fleet."
  }

  validation {
    condition     = length(distinct([for r in values(var.regions) : r.listener.port])) <= 1
    error_message = "regions: either all have a certificate or none: DNS sends a client to any of them."
  }

  validation {
    condition     = var.fleet.dns.mode == "route53" || length(var.regions) < 2 || contains(["geoip", "first"], coalesce(var.fleet.dns.steering, "clients")) || alltrue([for r in var.regions : length(r.clients) > 0])
    error_message = "regions: nothing distinguishes clients, so all that have no region would go to the first. Give every region clients, or set fleet.dns.steering to geoip or first."
  }

  validation {
    condition     = length(var.regions) < 2 || coalesce(var.fleet.dns.steering, "clients") != "geoip" || var.fleet.dns.geoip_key != null && length([for r in var.regions : r if r.location != null]) > 1
    error_message = "regions: fleet.dns.steering geoip needs geoip_key, a database in each region's bucket, and the location of at least two regions."
  }
}
