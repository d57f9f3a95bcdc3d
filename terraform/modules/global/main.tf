# Shared by all regions: the key that encrypts their gossip, the secret by which their edges
# choose whom to shed, and the authority that certifies their Consul servers to each other.

resource "random_bytes" "gossip" {
  length = 32
}

resource "random_bytes" "shedder" {
  length = 32
}

resource "tls_private_key" "ca" {
  algorithm   = "ECDSA"
  ecdsa_curve = "P256"
}

resource "tls_self_signed_cert" "ca" {
  private_key_pem       = tls_private_key.ca.private_key_pem
  is_ca_certificate     = true
  set_subject_key_id    = true
  validity_period_hours = 10 * 365 * 24
  early_renewal_hours   = 365 * 24
  allowed_uses          = ["cert_signing", "crl_signing", "digital_signature"]

  subject {
    common_name  = "${var.fleet.name} Consul CA"
    organization = var.fleet.name
  }
}

# Instances fetch them from the copy in their own AWS region, which outlives home.

resource "aws_secretsmanager_secret" "fleet" {
  for_each = local.secret_names

  region      = var.fleet.home
  name        = "${var.fleet.name}/fleet/${each.key}"
  description = "weir: ${each.key}"
  # Frees the name at once, in case the fleet is removed and comes back.
  recovery_window_in_days = 0
  tags                    = local.tags

  dynamic "replica" {
    for_each = setsubtract(values(var.fleet.regions)[*].aws_region, [var.fleet.home])

    content {
      region = replica.value
    }
  }
}

resource "aws_secretsmanager_secret_version" "fleet" {
  for_each = local.secret_names

  region        = var.fleet.home
  secret_id     = aws_secretsmanager_secret.fleet[each.key].id
  secret_string = local.secrets[each.key]
}
