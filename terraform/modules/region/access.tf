# Shells by Session Manager, and logs in CloudWatch: both only if the fleet has them.

resource "aws_iam_role_policy_attachment" "ssm" {
  for_each = { for name, role in local.roles : name => role if var.fleet.ssm }

  role       = each.value
  policy_arn = "arn:aws:iam::aws:policy/AmazonSSMManagedInstanceCore"
}

resource "aws_cloudwatch_log_group" "this" {
  count = local.logs == null ? 0 : 1

  region            = local.aws_region
  name              = local.logs.group
  retention_in_days = var.fleet.log_days
  tags              = local.tags
}

data "aws_iam_policy_document" "logs" {
  statement {
    sid       = "Logs"
    actions   = ["logs:CreateLogStream", "logs:PutLogEvents"]
    resources = ["arn:aws:logs:${local.aws_region}:*:log-group:${local.name}:*"]
  }
}

resource "aws_iam_role_policy" "logs" {
  for_each = { for name, role in local.roles : name => role if local.logs != null }

  name   = "${local.name}-logs"
  role   = each.value
  policy = data.aws_iam_policy_document.logs.json
}
