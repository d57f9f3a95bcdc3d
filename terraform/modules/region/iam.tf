# Each role reads only the secrets that its instances keep as files.

data "aws_iam_policy_document" "ec2" {
  statement {
    actions = ["sts:AssumeRole"]

    principals {
      type        = "Service"
      identifiers = ["ec2.amazonaws.com"]
    }
  }
}

data "aws_iam_policy_document" "instance" {
  for_each = local.instance_secrets

  statement {
    sid       = "Secrets"
    actions   = ["secretsmanager:GetSecretValue"]
    resources = [for secret in values(each.value) : startswith(secret.arn, "secret:") ? "arn:aws:secretsmanager:${local.aws_region}:*:${replace(secret.arn, ":${local.aws_region}:", ":")}-??????" : secret.arn]
  }

  statement {
    sid       = "Release"
    actions   = ["s3:GetObject"]
    resources = ["arn:aws:s3:::${var.release.bucket}/${var.release.key}"]
  }

  # Consul finds its servers by tag. EC2 cannot restrict this to some instances.
  statement {
    sid       = "Join"
    actions   = ["ec2:DescribeInstances"]
    resources = ["*"]

    # Consul's servers also find those of other regions.
    dynamic "condition" {
      for_each = each.key == "consul" ? [] : [local.aws_region]

      content {
        test     = "StringEquals"
        variable = "aws:RequestedRegion"
        values   = [condition.value]
      }
    }
  }
}

resource "aws_iam_role" "instance" {
  for_each = local.instance_secrets

  name               = "${local.name}-${each.key}"
  description        = "weir ${var.region}: ${each.key}"
  assume_role_policy = data.aws_iam_policy_document.ec2.json
  tags               = local.tags
}

resource "aws_iam_role_policy" "instance" {
  for_each = local.instance_secrets

  name   = "${local.name}-${each.key}"
  role   = aws_iam_role.instance[each.key].id
  policy = data.aws_iam_policy_document.instance[each.key].json
}

resource "aws_iam_instance_profile" "instance" {
  for_each = local.instance_secrets

  name = "${local.name}-${each.key}"
  role = aws_iam_role.instance[each.key].name
  tags = local.tags
}

# Without a key of one's own, Secrets Manager decrypts by itself.
data "aws_iam_policy_document" "kms" {
  count = var.kms_key_arn == null ? 0 : 1

  statement {
    sid       = "Key"
    actions   = ["kms:Decrypt", "kms:GenerateDataKey"]
    resources = [var.kms_key_arn]
  }
}

resource "aws_iam_role_policy" "kms" {
  for_each = toset([for name in ["edge", "consul", "rotate"] : name if var.kms_key_arn != null])

  name   = "${local.name}-kms"
  role   = each.key == "rotate" ? aws_iam_role.rotate.id : aws_iam_role.instance[each.key].id
  policy = data.aws_iam_policy_document.kms[0].json
}

# The rotation.

data "aws_iam_policy_document" "lambda" {
  statement {
    actions = ["sts:AssumeRole"]

    principals {
      type        = "Service"
      identifiers = ["lambda.amazonaws.com"]
    }
  }
}

data "aws_iam_policy_document" "rotate" {
  statement {
    sid = "Secret"
    actions = [
      "secretsmanager:DescribeSecret",
      "secretsmanager:GetSecretValue",
      "secretsmanager:PutSecretValue",
      "secretsmanager:UpdateSecretVersionStage",
    ]
    resources = [aws_secretsmanager_secret.redis.arn]
  }

  # It applies to no particular secret.
  statement {
    sid       = "Random"
    actions   = ["secretsmanager:GetRandomPassword"]
    resources = ["*"]
  }

  statement {
    sid       = "Redis"
    actions   = ["elasticache:DescribeReplicationGroups", "elasticache:ModifyReplicationGroup"]
    resources = [aws_elasticache_replication_group.this.arn]
  }

  statement {
    sid       = "Logs"
    actions   = ["logs:CreateLogStream", "logs:PutLogEvents"]
    resources = ["${aws_cloudwatch_log_group.rotate.arn}:*"]
  }
}

resource "aws_iam_role" "rotate" {
  name               = "${local.name}-rotate"
  description        = "weir ${var.region}: replaces the AUTH token of Redis"
  assume_role_policy = data.aws_iam_policy_document.lambda.json
  tags               = local.tags
}

resource "aws_iam_role_policy" "rotate" {
  name   = "${local.name}-rotate"
  role   = aws_iam_role.rotate.id
  policy = data.aws_iam_policy_document.rotate.json
}
