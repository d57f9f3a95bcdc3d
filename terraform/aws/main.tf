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
    common_name  = "${var.name} Consul CA"
    organization = var.name
  }
}

module "region" {
  source   = "../modules/region"
  for_each = var.regions

  name            = var.name
  region          = each.key
  aws_region      = each.value.aws_region
  pop             = each.value.pop
  vpc_cidr        = each.value.vpc_cidr
  zones           = each.value.zones
  zone_names      = each.value.zone_names
  peers           = { for name, r in var.regions : name => r.aws_region if name != each.key }
  peer_cidrs      = var.fleet_cidr == null ? [for name, r in var.regions : r.vpc_cidr if name != each.key] : local.fleet_cidrs
  operator_cidrs  = var.operator_cidrs
  probe_cidrs     = var.dns.mode == "regionctl" ? local.fleet_cidrs : []
  nat_gateways    = each.value.nat_gateways
  token_versions  = each.value.token_versions
  release         = local.releases[each.key]
  ami_id          = each.value.ami_id
  edges           = each.value.edges
  consul          = each.value.consul
  redis           = each.value.redis
  upstreams       = each.value.upstreams
  policy          = each.value.policy
  server          = each.value.server
  upstream        = each.value.upstream
  extra_config    = each.value.extra_config
  certificate_arn = local.certificates[each.key]
  alarm_topic_arn = each.value.alarm_topic_arn
  kms_key_arn     = each.value.kms_key_arn
  gossip_key      = random_bytes.gossip.base64
  shedder_secret  = random_bytes.shedder.hex
  verify_keys     = var.verify_keys
  require_signed  = var.require_signed
  tags            = var.tags

  ca = {
    certificate = tls_self_signed_cert.ca.cert_pem
    private_key = tls_private_key.ca.private_key_pem
  }
}
