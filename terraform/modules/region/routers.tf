# mode regionctl: the DNS routers of this region. What they know of other regions is in S3, where
# the global root puts it: another region replaces none.

resource "aws_eip" "dns" {
  for_each = local.routed ? local.zone_keys : toset([])

  region = local.aws_region
  domain = "vpc"
  tags   = merge(local.tags, { Name = "${local.name}-dns-${each.key}" })
}

module "dns" {
  source = "../dns"
  count  = local.routed ? 1 : 0

  name           = var.fleet.name
  region         = var.region
  aws_region     = local.aws_region
  zone           = var.fleet.dns.zone
  ttl            = var.fleet.dns.ttl
  nodes          = var.routers
  release        = local.release
  ami_id         = var.ami_id
  logs           = local.logs
  ca_secret      = "${local.fleet_secret}/ca"
  facts          = { bucket = aws_s3_bucket.nodes.bucket, prefix = "routers" }
  fleet_cidr     = var.fleet.cidr
  edge_port      = local.edge_port
  probe_port     = local.listener_port
  operator_cidrs = var.fleet.operator_cidrs
  kms_key_arn    = var.kms_key_arn
  geoip_key      = var.fleet.dns.geoip_key
  verify_keys    = var.fleet.verify_keys
  require_signed = var.fleet.require_signed
  allocation_ids = { for zone, address in aws_eip.dns : zone => address.allocation_id }
  tags           = var.fleet.tags

  network = {
    vpc_id             = aws_vpc.this.id
    public_subnet_ids  = { for key, subnet in aws_subnet.public : key => subnet.id }
    private_subnet_ids = { for key, subnet in aws_subnet.private : key => subnet.id }
  }

  depends_on = [aws_route.internet, aws_route.nat, aws_route_table_association.public, aws_route_table_association.private, aws_vpc_endpoint.s3, aws_secretsmanager_secret_version.token]
}

# A new account has five elastic addresses and five CPUs.
data "aws_servicequotas_service_quota" "this" {
  for_each = {
    addresses = { service = "ec2", code = "L-0263D0A3" }
    cpus      = { service = "ec2", code = "L-1216C47A" }
    peerings  = { service = "vpc", code = "L-7E9ECCDB" }
    routes    = { service = "vpc", code = "L-93826ACB" }
  }

  region       = local.aws_region
  service_code = each.value.service
  quota_code   = each.value.code
}

data "aws_ec2_instance_type" "this" {
  for_each = local.machines

  region        = local.aws_region
  instance_type = each.value.type
}
