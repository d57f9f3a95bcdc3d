# Who may reach whom. Only the load balancer's listener is open to the world.

locals {
  # Gossip uses both protocols; RPC and the WAN's gossip are between servers.
  gossip = { tcp = "tcp", udp = "udp" }
}

resource "aws_security_group" "lb" {
  region      = local.aws_region
  name        = "${local.name}-lb"
  description = "weir: the public load balancer"
  vpc_id      = aws_vpc.this.id
  tags        = merge(local.tags, { Name = "${local.name}-lb" })
}

resource "aws_security_group" "edge" {
  region      = local.aws_region
  name        = "${local.name}-edge"
  description = "weir: edge nodes"
  vpc_id      = aws_vpc.this.id
  tags        = merge(local.tags, { Name = "${local.name}-edge" })
}

resource "aws_security_group" "consul" {
  region      = local.aws_region
  name        = "${local.name}-consul"
  description = "weir: Consul servers"
  vpc_id      = aws_vpc.this.id
  tags        = merge(local.tags, { Name = "${local.name}-consul" })
}

resource "aws_security_group" "api" {
  region      = local.aws_region
  name        = "${local.name}-api"
  description = "weir: the internal load balancer before Consul"
  vpc_id      = aws_vpc.this.id
  tags        = merge(local.tags, { Name = "${local.name}-api" })
}

resource "aws_security_group" "redis" {
  region      = local.aws_region
  name        = "${local.name}-redis"
  description = "weir: Redis"
  vpc_id      = aws_vpc.this.id
  tags        = merge(local.tags, { Name = "${local.name}-redis" })
}

# The public load balancer.

resource "aws_vpc_security_group_ingress_rule" "lb_listener" {
  region            = local.aws_region
  security_group_id = aws_security_group.lb.id
  description       = "Clients, from everywhere"
  cidr_ipv4         = "0.0.0.0/0"
  ip_protocol       = "tcp"
  from_port         = local.listener_port
  to_port           = local.listener_port
  tags              = local.tags
}

resource "aws_vpc_security_group_egress_rule" "lb_edge" {
  for_each = { public = local.edge_port, health = local.admin_port }

  region                       = local.aws_region
  security_group_id            = aws_security_group.lb.id
  description                  = "To the edges: ${each.key}"
  referenced_security_group_id = aws_security_group.edge.id
  ip_protocol                  = "tcp"
  from_port                    = each.value
  to_port                      = each.value
  tags                         = local.tags
}

# Edges.

resource "aws_vpc_security_group_ingress_rule" "edge_lb" {
  for_each = { public = local.edge_port, health = local.admin_port }

  region                       = local.aws_region
  security_group_id            = aws_security_group.edge.id
  description                  = "From the load balancer: ${each.key}"
  referenced_security_group_id = aws_security_group.lb.id
  ip_protocol                  = "tcp"
  from_port                    = each.value
  to_port                      = each.value
  tags                         = local.tags
}

resource "aws_vpc_security_group_ingress_rule" "edge_probes" {
  for_each = toset(var.fleet.dns.mode == "regionctl" ? [var.fleet.cidr] : [])

  region            = local.aws_region
  security_group_id = aws_security_group.edge.id
  description       = "DNS routers: does it accept connections"
  cidr_ipv4         = each.value
  ip_protocol       = "tcp"
  from_port         = local.edge_port
  to_port           = local.edge_port
  tags              = local.tags
}

resource "aws_vpc_security_group_ingress_rule" "edge_operators" {
  for_each = toset(var.fleet.operator_cidrs)

  region            = local.aws_region
  security_group_id = aws_security_group.edge.id
  description       = "Operators: admin side"
  cidr_ipv4         = each.value
  ip_protocol       = "tcp"
  from_port         = local.admin_port
  to_port           = local.admin_port
  tags              = local.tags
}

resource "aws_vpc_security_group_ingress_rule" "edge_gossip" {
  for_each = { for pair in setproduct(["edge", "consul"], keys(local.gossip)) : join("-", pair) => { from = pair[0], protocol = pair[1] } }

  region                       = local.aws_region
  security_group_id            = aws_security_group.edge.id
  description                  = "Consul gossip from ${each.value.from}"
  referenced_security_group_id = each.value.from == "edge" ? aws_security_group.edge.id : aws_security_group.consul.id
  ip_protocol                  = each.value.protocol
  from_port                    = 8301
  to_port                      = 8301
  tags                         = local.tags
}

# Origins, AWS's own APIs, Redis and Consul. Origins' ports are unknown here.
resource "aws_vpc_security_group_egress_rule" "edge" {
  region            = local.aws_region
  security_group_id = aws_security_group.edge.id
  description       = "To origins, Redis, Consul and AWS"
  cidr_ipv4         = "0.0.0.0/0"
  ip_protocol       = "-1"
  tags              = local.tags
}

# Consul servers.

resource "aws_vpc_security_group_ingress_rule" "consul_gossip" {
  for_each = { for pair in setproduct(["edge", "consul"], keys(local.gossip)) : join("-", pair) => { from = pair[0], protocol = pair[1] } }

  region                       = local.aws_region
  security_group_id            = aws_security_group.consul.id
  description                  = "Consul gossip from ${each.value.from}"
  referenced_security_group_id = each.value.from == "edge" ? aws_security_group.edge.id : aws_security_group.consul.id
  ip_protocol                  = each.value.protocol
  from_port                    = 8301
  to_port                      = 8301
  tags                         = local.tags
}

# A security group cannot be referenced across regions; the fleet's private addresses can.
resource "aws_vpc_security_group_ingress_rule" "consul_wan" {
  for_each = local.gossip

  region            = local.aws_region
  security_group_id = aws_security_group.consul.id
  description       = "Consul WAN gossip"
  cidr_ipv4         = var.fleet.cidr
  ip_protocol       = each.value
  from_port         = 8302
  to_port           = 8302
  tags              = local.tags
}

resource "aws_vpc_security_group_ingress_rule" "consul_rpc" {
  region            = local.aws_region
  security_group_id = aws_security_group.consul.id
  description       = "Consul RPC from edges and servers, here and in other regions"
  cidr_ipv4         = var.fleet.cidr
  ip_protocol       = "tcp"
  from_port         = 8300
  to_port           = 8300
  tags              = local.tags
}

resource "aws_vpc_security_group_ingress_rule" "consul_https" {
  region                       = local.aws_region
  security_group_id            = aws_security_group.consul.id
  description                  = "Consul HTTPS, from the internal load balancer"
  referenced_security_group_id = aws_security_group.api.id
  ip_protocol                  = "tcp"
  from_port                    = 8501
  to_port                      = 8501
  tags                         = local.tags
}

resource "aws_vpc_security_group_egress_rule" "consul" {
  region            = local.aws_region
  security_group_id = aws_security_group.consul.id
  description       = "To peers and AWS"
  cidr_ipv4         = "0.0.0.0/0"
  ip_protocol       = "-1"
  tags              = local.tags
}

# The internal load balancer: regionctl, from this region and the others, and operators.

resource "aws_vpc_security_group_ingress_rule" "api" {
  for_each = toset(concat([var.fleet.cidr], var.fleet.operator_cidrs))

  region            = local.aws_region
  security_group_id = aws_security_group.api.id
  description       = "Consul HTTPS"
  cidr_ipv4         = each.value
  ip_protocol       = "tcp"
  from_port         = 8501
  to_port           = 8501
  tags              = local.tags
}

resource "aws_vpc_security_group_egress_rule" "api" {
  region                       = local.aws_region
  security_group_id            = aws_security_group.api.id
  description                  = "To the Consul servers"
  referenced_security_group_id = aws_security_group.consul.id
  ip_protocol                  = "tcp"
  from_port                    = 8501
  to_port                      = 8501
  tags                         = local.tags
}

# Redis: only from edges. It opens no connections itself.

resource "aws_vpc_security_group_ingress_rule" "redis" {
  region                       = local.aws_region
  security_group_id            = aws_security_group.redis.id
  description                  = "Edges"
  referenced_security_group_id = aws_security_group.edge.id
  ip_protocol                  = "tcp"
  from_port                    = local.redis_port
  to_port                      = local.redis_port
  tags                         = local.tags
}
