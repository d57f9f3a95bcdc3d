# A copy of the region's rules and their signatures, for edges that start while Consul is unreachable. Consul's
# servers write it; edges read it without credentials, and only through the VPC's endpoint.

locals {
  snapshot_files = ["rules.yaml", "rules.yaml.sig"]
}

resource "aws_s3_bucket" "rules" {
  region        = local.aws_region
  bucket_prefix = "${local.name}-rules-"
  # The next server writes it again.
  force_destroy = true
  tags          = local.tags
}

resource "aws_s3_bucket_public_access_block" "rules" {
  region                  = local.aws_region
  bucket                  = aws_s3_bucket.rules.id
  block_public_acls       = true
  block_public_policy     = true
  ignore_public_acls      = true
  restrict_public_buckets = true
}

data "aws_iam_policy_document" "rules" {
  statement {
    sid       = "Edges"
    actions   = ["s3:GetObject"]
    resources = [for name in local.snapshot_files : "${aws_s3_bucket.rules.arn}/${name}"]

    principals {
      type        = "*"
      identifiers = ["*"]
    }

    # A policy with this condition is not public.
    condition {
      test     = "StringEquals"
      variable = "aws:SourceVpce"
      values   = [aws_vpc_endpoint.s3.id]
    }
  }
}

resource "aws_s3_bucket_policy" "rules" {
  region = local.aws_region
  bucket = aws_s3_bucket.rules.id
  policy = data.aws_iam_policy_document.rules.json

  depends_on = [aws_s3_bucket_public_access_block.rules]
}

data "aws_iam_policy_document" "snapshot" {
  statement {
    sid       = "Snapshot"
    actions   = ["s3:PutObject"]
    resources = [for name in local.snapshot_files : "${aws_s3_bucket.rules.arn}/${name}"]
  }
}

resource "aws_iam_role_policy" "snapshot" {
  name   = "${local.name}-snapshot"
  role   = aws_iam_role.instance["consul"].id
  policy = data.aws_iam_policy_document.snapshot.json
}
