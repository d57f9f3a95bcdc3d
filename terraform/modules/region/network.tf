data "aws_availability_zones" "available" {
  region = local.aws_region
  state  = "available"

  filter {
    name   = "opt-in-status"
    values = ["opt-in-not-required"]
  }
}

locals {
  zone_names = var.zone_names != null ? var.zone_names : slice(data.aws_availability_zones.available.names, 0, var.zones)
  zone_keys  = toset([for i in range(var.zones) : tostring(i)])
  nats       = coalesce(var.nat_gateways, var.zones)
  nat_keys   = toset([for i in range(local.nats) : tostring(i)])
}

resource "aws_vpc" "this" {
  region               = local.aws_region
  cidr_block           = local.vpc_cidr
  enable_dns_hostnames = true
  tags                 = merge(local.tags, { Name = local.name })
}

# Left without rules, so that a resource without a named group reaches nothing.
resource "aws_default_security_group" "this" {
  region = local.aws_region
  vpc_id = aws_vpc.this.id
  tags   = merge(local.tags, { Name = "${local.name}-unused" })
}

resource "aws_internet_gateway" "this" {
  region = local.aws_region
  vpc_id = aws_vpc.this.id
  tags   = merge(local.tags, { Name = local.name })
}

# Public subnets hold load balancers and NAT gateways; no instance has a public address.
resource "aws_subnet" "public" {
  for_each = local.zone_keys

  region            = local.aws_region
  vpc_id            = aws_vpc.this.id
  availability_zone = local.zone_names[tonumber(each.key)]
  cidr_block        = cidrsubnet(local.vpc_cidr, 4, tonumber(each.key))
  tags              = merge(local.tags, { Name = "${local.name}-public-${each.key}" })
}

resource "aws_subnet" "private" {
  for_each = local.zone_keys

  region            = local.aws_region
  vpc_id            = aws_vpc.this.id
  availability_zone = local.zone_names[tonumber(each.key)]
  cidr_block        = cidrsubnet(local.vpc_cidr, 4, 8 + tonumber(each.key))
  tags              = merge(local.tags, { Name = "${local.name}-private-${each.key}" })
}

resource "aws_route_table" "public" {
  region = local.aws_region
  vpc_id = aws_vpc.this.id
  tags   = merge(local.tags, { Name = "${local.name}-public" })
}

resource "aws_route" "internet" {
  region                 = local.aws_region
  route_table_id         = aws_route_table.public.id
  destination_cidr_block = "0.0.0.0/0"
  gateway_id             = aws_internet_gateway.this.id
}

resource "aws_route_table_association" "public" {
  for_each = local.zone_keys

  region         = local.aws_region
  subnet_id      = aws_subnet.public[each.key].id
  route_table_id = aws_route_table.public.id
}

resource "aws_eip" "nat" {
  for_each = local.nat_keys

  region = local.aws_region
  domain = "vpc"
  tags   = merge(local.tags, { Name = "${local.name}-nat-${each.key}" })
}

# One in each zone by default: losing a zone must not cut the others off from their origins.
resource "aws_nat_gateway" "this" {
  for_each = local.nat_keys

  region        = local.aws_region
  allocation_id = aws_eip.nat[each.key].id
  subnet_id     = aws_subnet.public[each.key].id
  tags          = merge(local.tags, { Name = "${local.name}-${each.key}" })

  depends_on = [aws_internet_gateway.this]
}

resource "aws_route_table" "private" {
  for_each = local.zone_keys

  region = local.aws_region
  vpc_id = aws_vpc.this.id
  tags   = merge(local.tags, { Name = "${local.name}-private-${each.key}" })
}

resource "aws_route" "nat" {
  for_each = local.zone_keys

  region                 = local.aws_region
  route_table_id         = aws_route_table.private[each.key].id
  destination_cidr_block = "0.0.0.0/0"
  nat_gateway_id         = aws_nat_gateway.this[tostring(tonumber(each.key) % local.nats)].id
}

resource "aws_route_table_association" "private" {
  for_each = local.zone_keys

  region         = local.aws_region
  subnet_id      = aws_subnet.private[each.key].id
  route_table_id = aws_route_table.private[each.key].id
}

# The release comes from S3, and does not pass a NAT gateway if its bucket is in this
# region.
resource "aws_vpc_endpoint" "s3" {
  region            = local.aws_region
  vpc_id            = aws_vpc.this.id
  service_name      = "com.amazonaws.${local.aws_region}.s3"
  vpc_endpoint_type = "Gateway"
  route_table_ids   = [for key in local.zone_keys : aws_route_table.private[key].id]
  tags              = merge(local.tags, { Name = "${local.name}-s3" })
}
