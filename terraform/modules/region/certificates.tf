# With fleet.request_certificates, ACM issues a certificate for the zone. It finds the record that
# the global root has put there.

resource "aws_acm_certificate" "zone" {
  count = var.fleet.request_certificates ? 1 : 0

  region            = local.aws_region
  domain_name       = var.fleet.dns.zone
  validation_method = "DNS"
  tags              = local.tags

  lifecycle {
    create_before_destroy = true
  }
}

resource "aws_acm_certificate_validation" "zone" {
  count = var.fleet.request_certificates ? 1 : 0

  region          = local.aws_region
  certificate_arn = aws_acm_certificate.zone[0].arn
}

# Edges report their own in weir_certificate_expiry_seconds.
# ACM renews 60 days before the end; an imported certificate is renewed by its owner. At 30
# days neither has happened.
resource "aws_cloudwatch_metric_alarm" "certificate" {
  count = local.tls && !local.edge_tls ? 1 : 0

  region              = local.aws_region
  alarm_name          = "${local.name}-certificate"
  alarm_description   = "weir ${var.region}: the load balancer's certificate ends within 30 days. Renew it (imported), or look for the validation record in the zone (ACM)."
  namespace           = "AWS/CertificateManager"
  metric_name         = "DaysToExpiry"
  dimensions          = { CertificateArn = local.certificate_arn }
  statistic           = "Minimum"
  period              = 86400
  evaluation_periods  = 1
  comparison_operator = "LessThanThreshold"
  threshold           = 30
  treat_missing_data  = "missing"
  alarm_actions       = var.alarm_topic_arn == null ? [] : [var.alarm_topic_arn]
  tags                = local.tags
}
