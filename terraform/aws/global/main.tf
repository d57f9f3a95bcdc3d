# The global root: secrets that all regions share, peerings, the topology and the zone.

terraform {
  required_version = ">= 1.11"

  # The state holds the key of Consul's authority: only administrators may read it. An object next
  # to the state is its lock.
  backend "s3" {
    bucket       = "example-state-eu"
    key          = "weir/global"
    region       = "eu-west-1"
    encrypt      = true
    use_lockfile = true
  }
}

provider "aws" {
  region = local.fleet.home
}

locals {
  fleet = yamldecode(file("${path.module}/../settings.yaml"))
}

module "global" {
  source  = "../../modules/global"
  fleet   = local.fleet
  regions = { for file in fileset("${path.module}/regions", "*.json") : trimsuffix(file, ".json") => jsondecode(file("${path.module}/regions/${file}")) }
}

output "url" {
  description = "The name that clients resolve."
  value       = module.global.url
}

output "fleet" {
  description = "The fleet file of regionctl."
  value       = module.global.fleet
}

output "topology" {
  description = "The topology, for regionctl topology apply."
  value       = module.global.topology
}

output "ca_certificate" {
  description = "The certificate that verifies Consul's servers and the edges' admin side."
  value       = module.global.ca_certificate
}

output "name_servers" {
  description = "The zone's name servers in mode regionctl, with their addresses."
  value       = module.global.name_servers
}
