# With request_certificates, ACM issues one certificate for the zone in each region. In mode
# regionctl, output topology holds the record by which ACM renews them.

resource "aws_acm_certificate" "zone" {
  for_each = { for name, r in var.regions : name => r if var.request_certificates }

  region            = each.value.aws_region
  domain_name       = var.dns.zone
  validation_method = "DNS"
  tags              = merge(local.tags, { "weir:region" = each.key })

  lifecycle {
    create_before_destroy = true
  }
}

resource "aws_route53_record" "validation" {
  count = var.request_certificates ? 1 : 0

  zone_id         = var.dns.hosted_zone_id
  name            = local.validations[0].name
  type            = local.validations[0].type
  ttl             = 300
  records         = local.validations[0].values
  allow_overwrite = true
}

resource "aws_acm_certificate_validation" "zone" {
  for_each = aws_acm_certificate.zone

  region          = var.regions[each.key].aws_region
  certificate_arn = each.value.arn

  depends_on = [aws_route53_record.validation]
}

# ACM renews 60 days before the end; an imported certificate is renewed by its owner. At 30
# days neither has happened.
resource "aws_cloudwatch_metric_alarm" "certificate" {
  for_each = { for name, r in var.regions : name => r if local.tls }

  region              = each.value.aws_region
  alarm_name          = "${var.name}-${each.key}-certificate"
  alarm_description   = "weir ${each.key}: the load balancer's certificate ends within 30 days. Renew it (imported), or look for the validation record in the zone (ACM)."
  namespace           = "AWS/CertificateManager"
  metric_name         = "DaysToExpiry"
  dimensions          = { CertificateArn = local.certificates[each.key] }
  statistic           = "Minimum"
  period              = 86400
  evaluation_periods  = 1
  comparison_operator = "LessThanThreshold"
  threshold           = 30
  treat_missing_data  = "missing"
  alarm_actions       = each.value.alarm_topic_arn == null ? [] : [each.value.alarm_topic_arn]
  tags                = merge(local.tags, { "weir:region" = each.key })
}

# Five elastic addresses are the default; output addresses_needed says what the fleet takes.
data "aws_servicequotas_service_quota" "addresses" {
  for_each = local.addresses_needed

  region       = each.key
  service_code = "ec2"
  quota_code   = "L-0263D0A3"
}
