# Each edge has Consul tokens of its own, which end with its instance. Consul's servers make
# them and put them where only that instance may read: IAM compares the object's key with
# aws:userid, which is the role's ID and the instance's, and which no instance chooses.

locals {
  node_objects = "${aws_s3_bucket.nodes.bucket}/nodes/${aws_iam_role.instance["edge"].unique_id}"

  # Files of an edge that come from there. @INSTANCE_ID@ is replaced on the instance.
  edge_identity = {
    "/etc/consul.d/agent.json" = { arn = "s3:${local.aws_region}:${local.node_objects}:@INSTANCE_ID@/agent.json", group = "consul", consul = local.agent, reload = "weir-consul.service", needed = "soon" }
    "/etc/weir/admin.pem"      = { arn = "s3:${local.aws_region}:${local.node_objects}:@INSTANCE_ID@/admin.pem", group = "weir", reload = "weir-edge.service", needed = "soon" }
    "/etc/weir/consul-token"   = { arn = "s3:${local.aws_region}:${local.node_objects}:@INSTANCE_ID@/consul-token", group = "weir", consul = local.agent, needed = "soon" }
  }
}

resource "aws_s3_bucket" "nodes" {
  region        = local.aws_region
  bucket_prefix = "${local.name}-nodes-"
  # The next server writes the tokens again. Save the copies of Consul's data first.
  force_destroy = true
  tags          = local.tags
}

resource "aws_s3_bucket_public_access_block" "nodes" {
  region                  = local.aws_region
  bucket                  = aws_s3_bucket.nodes.id
  block_public_acls       = true
  block_public_policy     = true
  ignore_public_acls      = true
  restrict_public_buckets = true
}

# A Consul server that is taken over cannot delete the copies of its data by overwriting them.
resource "aws_s3_bucket_versioning" "nodes" {
  region = local.aws_region
  bucket = aws_s3_bucket.nodes.id

  versioning_configuration {
    status = "Enabled"
  }
}

# Copies of Consul's data have their hour as a name, so that none passes for a newer one.
resource "aws_s3_bucket_lifecycle_configuration" "nodes" {
  region = local.aws_region
  bucket = aws_s3_bucket.nodes.id

  rule {
    id     = "consul"
    status = "Enabled"

    filter {
      prefix = "consul/"
    }

    expiration {
      days = 30
    }
  }

  rule {
    id     = "previous"
    status = "Enabled"

    filter {}

    noncurrent_version_expiration {
      noncurrent_days = 30
    }
  }

  depends_on = [aws_s3_bucket_versioning.nodes]
}

data "aws_iam_policy_document" "nodes" {
  statement {
    sid       = "Tokens"
    actions   = ["s3:PutObject", "s3:DeleteObject"]
    resources = ["${aws_s3_bucket.nodes.arn}/nodes/*"]
  }

  # Nobody reads it but administrators of the account.
  statement {
    sid       = "Backup"
    actions   = ["s3:PutObject"]
    resources = ["${aws_s3_bucket.nodes.arn}/consul/*"]
  }
}

resource "aws_iam_role_policy" "nodes" {
  name   = "${local.name}-nodes"
  role   = aws_iam_role.instance["consul"].id
  policy = data.aws_iam_policy_document.nodes.json
}

data "aws_iam_policy_document" "identity" {
  statement {
    sid     = "Identity"
    actions = ["s3:GetObject"]
    # &{...} becomes a variable of IAM.
    resources = ["${aws_s3_bucket.nodes.arn}/nodes/&{aws:userid}/*"]
  }
}

resource "aws_iam_role_policy" "identity" {
  name   = "${local.name}-identity"
  role   = aws_iam_role.instance["edge"].id
  policy = data.aws_iam_policy_document.identity.json
}
