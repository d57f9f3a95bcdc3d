# For Consul's WAN and regionctl: every VPC is peered with every other. With more than
# about ten regions, a transit gateway in each would need fewer routes.

resource "aws_vpc_peering_connection" "this" {
  for_each = local.pairs

  region      = local.regions[each.value.a].aws_region
  vpc_id      = local.regions[each.value.a].vpc_id
  peer_vpc_id = local.regions[each.value.b].vpc_id
  peer_region = local.regions[each.value.b].aws_region
  auto_accept = false
  tags        = merge(local.tags, { Name = "${var.fleet.name} ${each.key}" })
}

resource "aws_vpc_peering_connection_accepter" "this" {
  for_each = local.pairs

  region                    = local.regions[each.value.b].aws_region
  vpc_peering_connection_id = aws_vpc_peering_connection.this[each.key].id
  auto_accept               = true
  tags                      = merge(local.tags, { Name = "${var.fleet.name} ${each.key}" })
}

resource "aws_route" "peer" {
  for_each = local.routes

  region                    = local.regions[each.value.from].aws_region
  route_table_id            = local.regions[each.value.from].route_table_ids[each.value.zone]
  destination_cidr_block    = local.regions[each.value.to].vpc_cidr
  vpc_peering_connection_id = aws_vpc_peering_connection_accepter.this[each.value.pair].id
}
