terraform {
  required_version = ">= 1.11"

  required_providers {
    aws = {
      source  = "hashicorp/aws"
      version = "~> 6.0"
    }
    random = {
      source  = "hashicorp/random"
      version = "~> 3.7"
    }
    tls = {
      source  = "hashicorp/tls"
      version = "~> 4.1"
    }
  }

  # The state holds keys and tokens. Keep it in an encrypted backend that only
  # administrators read: terraform init -backend-config=backend.hcl. An object next to the state is
  # its lock.
  backend "s3" {
    encrypt      = true
    use_lockfile = true
  }
}

# One provider for all regions: each resource says where it lives.
provider "aws" {
  region = local.home
}
