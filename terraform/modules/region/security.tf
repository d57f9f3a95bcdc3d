# Who may reach whom. Only the load balancer's listener is open to the world.

locals {
  peer_cidrs = toset(var.peer_cidrs)
  # Gossip uses both protocols; RPC and the WAN's gossip are between servers.
  gossip = { tcp = "tcp", udp = "udp" }
}

resource "aws_security_group" "lb" {
  region      = var.aws_region
  name        = "${local.name}-lb"
  description = "weir: the public load balancer"
  vpc_id      = aws_vpc.this.id
  tags        = merge(local.tags, { Name = "${local.name}-lb" })
}

resource "aws_security_group" "edge" {
  region      = var.aws_region
  name        = "${local.name}-edge"
  description = "weir: edge nodes"
  vpc_id      = aws_vpc.this.id
  tags        = merge(local.tags, { Name = "${local.name}-edge" })
}

resource "aws_security_group" "consul" {
  region      = var.aws_region
  name        = "${local.name}-consul"
  description = "weir: Consul servers"
  vpc_id      = aws_vpc.this.id
  tags        = merge(local.tags, { Name = "${local.name}-consul" })
}

resource "aws_security_group" "api" {
  region      = var.aws_region
  name        = "${local.name}-api"
  description = "weir: the internal load balancer before Consul"
  vpc_id      = aws_vpc.this.id
  tags        = merge(local.tags, { Name = "${local.name}-api" })
}

resource "aws_security_group" "redis" {
  region      = var.aws_region
  name        = "${local.name}-redis"
  description = "weir: Redis"
  vpc_id      = aws_vpc.this.id
  tags        = merge(local.tags, { Name = "${local.name}-redis" })
}

# The public load balancer.

resource "aws_vpc_security_group_ingress_rule" "lb_listener" {
  region            = var.aws_region
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

  region                       = var.aws_region
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

  region                       = var.aws_region
  security_group_id            = aws_security_group.edge.id
  description                  = "From the load balancer: ${each.key}"
  referenced_security_group_id = aws_security_group.lb.id
  ip_protocol                  = "tcp"
  from_port                    = each.value
  to_port                      = each.value
  tags                         = local.tags
}

resource "aws_vpc_security_group_ingress_rule" "edge_probes" {
  for_each = toset(var.probe_cidrs)

  region            = var.aws_region
  security_group_id = aws_security_group.edge.id
  description       = "DNS routers: does it accept connections"
  cidr_ipv4         = each.value
  ip_protocol       = "tcp"
  from_port         = local.edge_port
  to_port           = local.edge_port
  tags              = local.tags
}

resource "aws_vpc_security_group_ingress_rule" "edge_operators" {
  for_each = toset(var.operator_cidrs)

  region            = var.aws_region
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

  region                       = var.aws_region
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
  region            = var.aws_region
  security_group_id = aws_security_group.edge.id
  description       = "To origins, Redis, Consul and AWS"
  cidr_ipv4         = "0.0.0.0/0"
  ip_protocol       = "-1"
  tags              = local.tags
}

# Consul servers.

resource "aws_vpc_security_group_ingress_rule" "consul_gossip" {
  for_each = { for pair in setproduct(["edge", "consul"], keys(local.gossip)) : join("-", pair) => { from = pair[0], protocol = pair[1] } }

  region                       = var.aws_region
  security_group_id            = aws_security_group.consul.id
  description                  = "Consul gossip from ${each.value.from}"
  referenced_security_group_id = each.value.from == "edge" ? aws_security_group.edge.id : aws_security_group.consul.id
  ip_protocol                  = each.value.protocol
  from_port                    = 8301
  to_port                      = 8301
  tags                         = local.tags
}

resource "aws_vpc_security_group_ingress_rule" "consul_rpc" {
  for_each = { edge = aws_security_group.edge.id, consul = aws_security_group.consul.id }

  region                       = var.aws_region
  security_group_id            = aws_security_group.consul.id
  description                  = "Consul RPC from ${each.key}"
  referenced_security_group_id = each.value
  ip_protocol                  = "tcp"
  from_port                    = 8300
  to_port                      = 8300
  tags                         = local.tags
}

# Servers of one datacenter are also members of the WAN's gossip.
resource "aws_vpc_security_group_ingress_rule" "consul_wan_self" {
  for_each = local.gossip

  region                       = var.aws_region
  security_group_id            = aws_security_group.consul.id
  description                  = "Consul WAN gossip among servers here"
  referenced_security_group_id = aws_security_group.consul.id
  ip_protocol                  = each.value
  from_port                    = 8302
  to_port                      = 8302
  tags                         = local.tags
}

# A security group cannot be referenced across regions; the peers' private addresses
# can.
resource "aws_vpc_security_group_ingress_rule" "consul_wan" {
  for_each = { for pair in setproduct(local.peer_cidrs, keys(local.gossip)) : join("-", pair) => { cidr = pair[0], protocol = pair[1] } }

  region            = var.aws_region
  security_group_id = aws_security_group.consul.id
  description       = "Consul WAN gossip from a peer"
  cidr_ipv4         = each.value.cidr
  ip_protocol       = each.value.protocol
  from_port         = 8302
  to_port           = 8302
  tags              = local.tags
}

resource "aws_vpc_security_group_ingress_rule" "consul_wan_rpc" {
  for_each = local.peer_cidrs

  region            = var.aws_region
  security_group_id = aws_security_group.consul.id
  description       = "Consul RPC from a peer"
  cidr_ipv4         = each.value
  ip_protocol       = "tcp"
  from_port         = 8300
  to_port           = 8300
  tags              = local.tags
}

resource "aws_vpc_security_group_ingress_rule" "consul_https" {
  region                       = var.aws_region
  security_group_id            = aws_security_group.consul.id
  description                  = "Consul HTTPS, from the internal load balancer"
  referenced_security_group_id = aws_security_group.api.id
  ip_protocol                  = "tcp"
  from_port                    = 8501
  to_port                      = 8501
  tags                         = local.tags
}

resource "aws_vpc_security_group_egress_rule" "consul" {
  region            = var.aws_region
  security_group_id = aws_security_group.consul.id
  description       = "To peers and AWS"
  cidr_ipv4         = "0.0.0.0/0"
  ip_protocol       = "-1"
  tags              = local.tags
}

# The internal load balancer: regionctl, from this region and the others, and operators.

resource "aws_vpc_security_group_ingress_rule" "api" {
  for_each = setunion(local.peer_cidrs, toset(var.operator_cidrs), toset([var.vpc_cidr]))

  region            = var.aws_region
  security_group_id = aws_security_group.api.id
  description       = "Consul HTTPS"
  cidr_ipv4         = each.value
  ip_protocol       = "tcp"
  from_port         = 8501
  to_port           = 8501
  tags              = local.tags
}

resource "aws_vpc_security_group_egress_rule" "api" {
  region                       = var.aws_region
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
  region                       = var.aws_region
  security_group_id            = aws_security_group.redis.id
  description                  = "Edges"
  referenced_security_group_id = aws_security_group.edge.id
  ip_protocol                  = "tcp"
  from_port                    = local.redis_port
  to_port                      = local.redis_port
  tags                         = local.tags
}
