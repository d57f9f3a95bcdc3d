variable "name" {
  description = "Prefix of resource names."
  type        = string
  default     = "weir"

  validation {
    condition     = can(regex("^[a-z][a-z0-9]{0,7}$", var.name))
    error_message = "name must be 1 to 8 lower-case letters and digits, and begin with a letter."
  }
}

variable "region" {
  description = "The name of the routers' region in weir."
  type        = string

  validation {
    condition     = length(var.region) >= 2 && length(var.region) <= 16 && can(regex("^[a-z][a-z0-9]*(-[a-z0-9]+)*$", var.region))
    error_message = "region must be 2 to 16 lower-case letters, digits and dashes, begin with a letter, and have no dash at the end and no two in a row."
  }
}

variable "aws_region" {
  description = "The AWS region."
  type        = string

  validation {
    condition     = can(regex("^[a-z]{2}(-[a-z]+)+-[0-9]$", var.aws_region))
    error_message = "aws_region must be the name of an AWS region, such as eu-west-1."
  }
}

variable "zone" {
  description = "The DNS zone for which the routers answer."
  type        = string

  validation {
    condition     = can(regex("^([a-z0-9]([a-z0-9-]*[a-z0-9])?\\.)+[a-z]{2,}$", var.zone))
    error_message = "zone must be a domain name in lower case without the last dot, such as edge.example.com."
  }
}

variable "ttl" {
  description = "How many seconds resolvers may cache an answer."
  type        = number
  default     = 20

  validation {
    condition     = var.ttl >= 1 && var.ttl <= 3600
    error_message = "ttl must be 1 to 3600 seconds."
  }
}

variable "nodes" {
  description = "The number and type of routers."
  type = object({
    count         = optional(number, 2)
    instance_type = optional(string, "t3.small")
  })
  default = {}

  validation {
    condition     = var.nodes.count >= 2 && var.nodes.count <= 20 && floor(var.nodes.count) == var.nodes.count
    error_message = "nodes.count must be a whole number from 2 to 20: a single router cannot be replaced without a gap."
  }
}

variable "network" {
  description = "The routers' VPC, as modules/region outputs it: its id, public subnets by zone, and private subnets by zone."
  type = object({
    vpc_id             = string
    public_subnet_ids  = map(string)
    private_subnet_ids = map(string)
  })
}

variable "allocation_ids" {
  description = "The elastic addresses of the load balancer, by zone, like the public subnets."
  type        = map(string)
}

variable "ca_secret" {
  description = "The secret with the certificate that verifies the Consul servers, as modules/cloud-init takes it."
  type        = string

  validation {
    condition     = startswith(var.ca_secret, "secret:")
    error_message = "ca_secret must be secret:REGION:NAME."
  }
}

variable "facts" {
  description = "Where the global root puts what routers know of all regions: a bucket in aws_region, and the prefix of its keys."
  type        = object({ bucket = string, prefix = string })
}

variable "fleet_cidr" {
  description = "The network of all regions, in which the routers reach Consul and edges."
  type        = string

  validation {
    condition     = can(cidrnetmask(var.fleet_cidr))
    error_message = "fleet_cidr must be an IPv4 network."
  }
}

variable "logs" {
  description = "The CloudWatch log group of the routers' logs, as modules/cloud-init takes it. Null: none."
  type        = object({ group = string, region = string })
  default     = null
}

variable "kms_key_arn" {
  description = "The KMS key, in aws_region, that encrypts disks and the key of the routers. Null: AWS's own keys."
  type        = string
  default     = null

  validation {
    condition     = var.kms_key_arn == null || can(regex("^arn:[a-z-]+:kms:", var.kms_key_arn))
    error_message = "kms_key_arn must be the ARN of a KMS key, or null."
  }
}

variable "geoip_key" {
  description = "The key of a GeoIP database in the release's bucket, such as geo/city.mmdb, by which routers find the nearest PoP. They look for a new one every ten minutes, and start without. Null: none."
  type        = string
  default     = null

  validation {
    condition     = var.geoip_key == null || can(regex("^[^ ']+\\.mmdb$", var.geoip_key))
    error_message = "geoip_key must be the key of an object in the MaxMind DB format, such as geo/city.mmdb."
  }
}

variable "edge_port" {
  description = "The port of the edges, as modules/region outputs it."
  type        = number

  validation {
    condition     = var.edge_port >= 1 && var.edge_port <= 65535
    error_message = "edge_port must be 1 to 65535."
  }
}

variable "probe_port" {
  description = "The port at which routers probe the PoPs' public addresses, as the topology says."
  type        = number
  default     = 443

  validation {
    condition     = var.probe_port >= 1 && var.probe_port <= 65535
    error_message = "probe_port must be 1 to 65535."
  }
}

variable "operator_cidrs" {
  description = "Networks from which Prometheus may read the routers' metrics."
  type        = list(string)
  default     = []

  validation {
    condition     = alltrue([for cidr in var.operator_cidrs : can(cidrnetmask(cidr)) && try(tonumber(split("/", cidr)[1]) >= 8, false)])
    error_message = "operator_cidrs must be IPv4 networks of /8 or smaller, such as 10.200.0.0/24: metrics must not be public."
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
  description = "The AMI: Amazon Linux 2023 for the release's architecture."
  type        = string

  validation {
    condition     = startswith(var.ami_id, "ami-")
    error_message = "ami_id must begin with ami-."
  }
}

variable "verify_keys" {
  description = "The public keys, in PEM, of everyone who may publish a topology. Routers report a topology without a valid signature."
  type        = list(string)
  default     = []

  validation {
    condition     = length(var.verify_keys) <= 20 && alltrue([for text in var.verify_keys : can(regex("^(-----BEGIN PUBLIC KEY-----\\r?\\nMCowBQYDK2VwAyEA[A-Za-z0-9+/]{43}=\\r?\\n-----END PUBLIC KEY-----\\s*)+$", text))])
    error_message = "verify_keys must be at most 20 Ed25519 public keys in PEM, as regionctl keys generate writes them to KEYFILE.pub; never a private key."
  }
}

variable "require_signed" {
  description = "Routers ignore a topology without a signature by one of verify_keys."
  type        = bool
  default     = false
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
