# One region. upgrade.sh changes release.auto.tfvars.

terraform {
  required_version = ">= 1.11"

  # In the region itself: another one that is lost does not stop an apply here.
  backend "s3" {
    bucket       = "example-state-us"
    key          = "weir/us-east"
    region       = "us-east-1"
    encrypt      = true
    use_lockfile = true
  }
}

provider "aws" {
  region = "us-east-1"
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
  region  = "us-east"
  release = merge(var.release, { bucket = "example-releases-us" })
  ami_id  = var.ami_id

  zone_names = ["us-east-1a", "us-east-1b", "us-east-1c"]
  pop        = "iad1"
  location   = { lat = 38.94, lon = -77.46 }
  upstreams  = ["https://origin-us.example.com"]
}

output "facts" {
  description = "What the global root has to know: terraform output -json facts >../global/regions/us-east.json."
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
