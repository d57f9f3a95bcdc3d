resource "aws_elasticache_subnet_group" "this" {
  region      = local.aws_region
  name        = local.name
  description = "weir: private subnets"
  subnet_ids  = [for key in local.zone_keys : aws_subnet.private[key].id]
  tags        = local.tags
}

resource "aws_elasticache_parameter_group" "this" {
  region      = local.aws_region
  name        = local.name
  description = "weir: counters with a time to live"
  family      = var.redis.engine == "valkey" ? "valkey8" : "redis7"
  tags        = local.tags

  parameter {
    name  = "cluster-enabled"
    value = "yes"
  }

  # Evicting a counter lets its client start over. With noeviction a full Redis refuses to
  # decide, and each rule's on_store_failure decides instead.
  parameter {
    name  = "maxmemory-policy"
    value = "noeviction"
  }

  # Free an expired sorted set of 100,000 entries in the background; otherwise Redis serves no request
  # meanwhile.
  parameter {
    name  = "lazyfree-lazy-expire"
    value = "yes"
  }
}

# The first AUTH token. Rotation replaces it right after it is set; after the next
# rotation, the state holds a token that Redis no longer accepts.
resource "random_password" "redis" {
  length  = 64
  special = false
}

resource "aws_elasticache_replication_group" "this" {
  region               = local.aws_region
  replication_group_id = local.name
  description          = "weir: counters of ${var.region}"
  tags                 = local.tags

  engine               = var.redis.engine
  engine_version       = var.redis.version
  node_type            = var.redis.node_type
  port                 = local.redis_port
  parameter_group_name = aws_elasticache_parameter_group.this.name

  cluster_mode               = "enabled"
  num_node_groups            = var.redis.shards
  replicas_per_node_group    = var.redis.replicas
  automatic_failover_enabled = true
  multi_az_enabled           = true
  subnet_group_name          = aws_elasticache_subnet_group.this.name
  security_group_ids         = [aws_security_group.redis.id]

  at_rest_encryption_enabled = true
  kms_key_id                 = var.kms_key_arn
  transit_encryption_enabled = true
  transit_encryption_mode    = "required"
  auth_token                 = random_password.redis.result
  auth_token_update_strategy = "ROTATE"

  # Counters live for minutes; a backup would restore stale ones.
  snapshot_retention_limit   = 0
  auto_minor_version_upgrade = true
  apply_immediately          = true

  lifecycle {
    # From then on the rotation changes it.
    ignore_changes = [auth_token, auth_token_update_strategy]
  }
}

# With noeviction a full node decides nothing: each rule's on_store_failure does.
resource "aws_cloudwatch_metric_alarm" "memory" {
  for_each = toset([for node in setproduct(range(var.redis.shards), range(1 + var.redis.replicas)) : format("%s-%04d-%03d", local.name, 1 + node[0], 1 + node[1])])

  region              = local.aws_region
  alarm_name          = "${each.key}-memory"
  alarm_description   = "weir ${var.region}: a node of Redis has used 80% of its memory. Take a larger node_type or more shards, or look for rules with more keys than meant."
  namespace           = "AWS/ElastiCache"
  metric_name         = "DatabaseMemoryUsagePercentage"
  dimensions          = { CacheClusterId = each.key }
  statistic           = "Maximum"
  period              = 60
  evaluation_periods  = 5
  comparison_operator = "GreaterThanThreshold"
  threshold           = 80
  treat_missing_data  = "missing"
  alarm_actions       = var.alarm_topic_arn == null ? [] : [var.alarm_topic_arn]
  tags                = local.tags
}

# Rotation: a function that Secrets Manager calls for each step.

data "archive_file" "rotate" {
  type        = "zip"
  source_file = "${path.module}/files/rotate.py"
  output_path = "${path.root}/.terraform/${local.name}-rotate.zip"
}

resource "aws_lambda_function" "rotate" {
  region           = local.aws_region
  function_name    = "${local.name}-rotate"
  description      = "weir: replaces the AUTH token of Redis"
  role             = aws_iam_role.rotate.arn
  runtime          = "python3.13"
  architectures    = ["arm64"]
  handler          = "rotate.handler"
  timeout          = 900
  filename         = data.archive_file.rotate.output_path
  source_code_hash = data.archive_file.rotate.output_base64sha256
  tags             = local.tags

  environment {
    variables = { REPLICATION_GROUP = aws_elasticache_replication_group.this.id }
  }

  depends_on = [aws_iam_role_policy.rotate, aws_iam_role_policy.kms]
}

# Lambda writes to the group of this name.
resource "aws_cloudwatch_log_group" "rotate" {
  region            = local.aws_region
  name              = "/aws/lambda/${local.name}-rotate"
  retention_in_days = 30
  tags              = local.tags
}

resource "aws_cloudwatch_metric_alarm" "rotate" {
  region              = local.aws_region
  alarm_name          = "${local.name}-rotate"
  alarm_description   = "weir ${var.region}: the rotation of Redis's AUTH token failed. Its log group says why; then rotate the secret again. Until then both tokens stay valid."
  namespace           = "AWS/Lambda"
  metric_name         = "Errors"
  dimensions          = { FunctionName = aws_lambda_function.rotate.function_name }
  statistic           = "Sum"
  period              = 300
  evaluation_periods  = 1
  comparison_operator = "GreaterThanThreshold"
  threshold           = 0
  treat_missing_data  = "notBreaching"
  alarm_actions       = var.alarm_topic_arn == null ? [] : [var.alarm_topic_arn]
  tags                = local.tags
}

resource "aws_lambda_permission" "rotate" {
  region        = local.aws_region
  statement_id  = "secrets-manager"
  action        = "lambda:InvokeFunction"
  function_name = aws_lambda_function.rotate.function_name
  principal     = "secretsmanager.amazonaws.com"
  source_arn    = aws_secretsmanager_secret.redis.arn
}

resource "aws_secretsmanager_secret_rotation" "redis" {
  region              = local.aws_region
  secret_id           = aws_secretsmanager_secret.redis.id
  rotation_lambda_arn = aws_lambda_function.rotate.arn
  rotate_immediately  = true

  rotation_rules {
    automatically_after_days = var.redis.rotation_days
  }

  depends_on = [aws_lambda_permission.rotate, aws_secretsmanager_secret_version.redis]
}
