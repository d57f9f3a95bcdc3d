# Every secret is one file on the instances that need it, so that a role can be allowed
# exactly those, and no instance has to split a secret. Each value is in one secret.

# Made anew by each run, kept nowhere but in Secrets Manager, and written there only when
# token_versions says so: neither plans nor the state ever hold them.
ephemeral "random_password" "token" {
  for_each = local.token_names

  length  = 48
  special = false
}

locals {
  token_names = toset(["management", "agent", "edge", "regionctl", "dns", "admin", "nodes"])

  # Consul's tokens are UUIDs.
  tokens = { for name, made in ephemeral.random_password.token : name => uuidv5("oid", made.result) }

  token_secrets = {
    # Parts of Consul's configuration: of the servers', and of every agent's.
    management-token = jsonencode({ acl = { tokens = { initial_management = local.tokens["management"] } } })
    agent-token      = jsonencode({ acl = { tokens = { agent = local.tokens["agent"] } } })
    edge-token       = local.tokens["edge"]
    regionctl-token  = local.tokens["regionctl"]
    dns-token        = local.tokens["dns"]
    admin-token      = local.tokens["admin"]
    nodes-token      = local.tokens["nodes"] # from which those of each edge follow
  }

  # The state holds these anyway.
  key_secrets = {
    consul-gossip     = jsonencode({ encrypt = var.gossip_key })
    consul-server-key = tls_private_key.consul.private_key_pem
    edge-admin-key    = tls_private_key.edge.private_key_pem
    edge-shedder      = var.shedder_secret
  }
  key_names = toset(["consul-gossip", "consul-server-key", "edge-admin-key", "edge-shedder"])
}

resource "aws_secretsmanager_secret" "this" {
  for_each = setunion(local.key_names, toset([for name in local.token_names : "${name}-token"]))

  region      = var.aws_region
  name        = "${var.name}/${var.region}/${each.key}"
  description = "weir ${var.region}: ${each.key}"
  # Frees the name at once, in case the region is removed and comes back.
  recovery_window_in_days = 0
  tags                    = local.tags
}

resource "aws_secretsmanager_secret_version" "key" {
  for_each = local.key_names

  region        = var.aws_region
  secret_id     = aws_secretsmanager_secret.this[each.key].id
  secret_string = local.key_secrets[each.key]
}

resource "aws_secretsmanager_secret_version" "token" {
  for_each = local.token_names

  region                   = var.aws_region
  secret_id                = aws_secretsmanager_secret.this["${each.key}-token"].id
  secret_string_wo         = local.token_secrets["${each.key}-token"]
  secret_string_wo_version = lookup(var.token_versions, each.key, 1)
}

# Separate from the others: it is rotated on its own.
resource "aws_secretsmanager_secret" "redis" {
  region                  = var.aws_region
  name                    = "${var.name}/${var.region}/redis"
  description             = "weir ${var.region}: AUTH token of Redis"
  recovery_window_in_days = 0
  tags                    = local.tags
}

resource "aws_secretsmanager_secret_version" "redis" {
  region        = var.aws_region
  secret_id     = aws_secretsmanager_secret.redis.id
  secret_string = random_password.redis.result

  lifecycle {
    # From then on the rotation changes it.
    ignore_changes = [secret_string, version_stages]
  }
}

# The certificate of the edges' admin listeners. All share it, as they share its name, and
# it has no other use: Consul accepts no server without its own name.

resource "tls_private_key" "edge" {
  algorithm   = "ECDSA"
  ecdsa_curve = "P256"
}

resource "tls_cert_request" "edge" {
  private_key_pem = tls_private_key.edge.private_key_pem
  dns_names       = [local.edge_admin_name]

  subject {
    common_name = local.edge_admin_name
  }
}

resource "tls_locally_signed_cert" "edge" {
  cert_request_pem      = tls_cert_request.edge.cert_request_pem
  ca_cert_pem           = var.ca.certificate
  ca_private_key_pem    = var.ca.private_key
  validity_period_hours = 2 * 365 * 24
  early_renewal_hours   = 90 * 24
  allowed_uses          = ["digital_signature", "server_auth"]
}

# The certificate of the Consul servers. All share it, as they share its name.

resource "tls_private_key" "consul" {
  algorithm   = "ECDSA"
  ecdsa_curve = "P256"
}

resource "tls_cert_request" "consul" {
  private_key_pem = tls_private_key.consul.private_key_pem
  dns_names       = [local.consul_server_name, "localhost"]
  ip_addresses    = ["127.0.0.1"]

  subject {
    common_name = local.consul_server_name
  }
}

resource "tls_locally_signed_cert" "consul" {
  cert_request_pem      = tls_cert_request.consul.cert_request_pem
  ca_cert_pem           = var.ca.certificate
  ca_private_key_pem    = var.ca.private_key
  validity_period_hours = 2 * 365 * 24
  early_renewal_hours   = 90 * 24
  allowed_uses          = ["digital_signature", "key_encipherment", "server_auth", "client_auth"]
}
