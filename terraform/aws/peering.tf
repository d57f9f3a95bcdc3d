# For Consul's WAN and regionctl: every VPC is peered with every other. With more than
# about ten regions, a transit gateway in each would need fewer routes.

resource "aws_vpc_peering_connection" "this" {
  for_each = local.pairs

  region      = var.regions[each.value.a].aws_region
  vpc_id      = module.region[each.value.a].vpc_id
  peer_vpc_id = module.region[each.value.b].vpc_id
  peer_region = var.regions[each.value.b].aws_region
  auto_accept = false
  tags        = merge(local.tags, { Name = "${var.name} ${each.key}" })
}

resource "aws_vpc_peering_connection_accepter" "this" {
  for_each = local.pairs

  region                    = var.regions[each.value.b].aws_region
  vpc_peering_connection_id = aws_vpc_peering_connection.this[each.key].id
  auto_accept               = true
  tags                      = merge(local.tags, { Name = "${var.name} ${each.key}" })
}

resource "aws_route" "peer" {
  for_each = local.routes

  region                    = var.regions[each.value.from].aws_region
  route_table_id            = module.region[each.value.from].route_table_ids[each.value.zone]
  destination_cidr_block    = var.regions[each.value.to].vpc_cidr
  vpc_peering_connection_id = aws_vpc_peering_connection_accepter.this[each.value.pair].id
}
