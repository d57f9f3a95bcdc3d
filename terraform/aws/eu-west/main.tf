# One region. upgrade.sh changes release.auto.tfvars.

terraform {
  required_version = ">= 1.11"

  # In the region itself: another one that is lost does not stop an apply here.
  backend "s3" {
    bucket       = "example-state-eu"
    key          = "weir/eu-west"
    region       = "eu-west-1"
    encrypt      = true
    use_lockfile = true
  }
}

provider "aws" {
  region = "eu-west-1"
}

variable "release" {
  description = "The key of the programs in the bucket, and their SHA-256."
  type        = object({ key = string, sha256 = string })
}

variable "ami_id" {
  description = "The AMI of all instances."
  type        = string

  validation {
    condition     = startswith(var.ami_id, "ami-")
    error_message = "ami_id must begin with ami-."
  }
}

module "region" {
  source  = "../../modules/region"
  fleet   = yamldecode(file("${path.module}/../settings.yaml"))
  region  = "eu-west"
  release = merge(var.release, { bucket = "example-releases-eu" })
  ami_id  = var.ami_id

  zone_names = ["eu-west-1a", "eu-west-1b", "eu-west-1c"]
  pop        = "dub1"
  location   = { lat = 53.35, lon = -6.26 }
  upstreams  = ["https://origin-eu.example.com"]
  edges      = { count = 4 }

  # Every setting of docs/CONFIG.md.
  extra_config = <<-EOT
    server: {max_connections_per_client: 500}
    upstream: {health_check: {path: /healthz}}
  EOT
}

output "facts" {
  description = "What the global root has to know: terraform output -json facts >../global/regions/eu-west.json."
  value       = module.region.facts
}

output "secret_arns" {
  description = "The secrets: regionctl-token and admin-token are for operators."
  value       = module.region.secret_arns
}

output "groups" {
  description = "The autoscaling groups, for upgrade.sh."
  value       = module.region.groups
}
