# terraform test in modules/cloud-init, the one module that needs no provider.

variables {
  release = { bucket = "releases", key = "weir.tar.gz", region = "eu-west-1", sha256 = "0123456789012345678901234567890123456789012345678901234567890123" }
  files   = { "/etc/weir/edge.yaml" = { content = "node: {id: \"@INSTANCE_ID@\"}\n" } }
  start   = ["weir-edge.service"]
  units   = { "weir-edge.service" = "[Service]\n" }
  secrets = {
    "/etc/weir/admin-token"  = { arn = "arn:aws:secretsmanager:eu-west-1:1:secret:admin", group = "weir" }
    "/etc/weir/consul-token" = { arn = "s3:eu-west-1:nodes/i-1/consul-token", group = "weir", needed = "soon" }
  }
}

run "a_cloud_config" {
  command = plan

  assert {
    condition     = startswith(output.text, "#cloud-config\n")
    error_message = "cloud-init would not recognize it."
  }

  assert {
    condition     = strcontains(output.text, "/etc/weir/admin-token weir arn:aws:secretsmanager:eu-west-1:1:secret:admin - - - now")
    error_message = "A secret is needed unless it says otherwise."
  }

  assert {
    condition     = strcontains(output.text, "UNITS='weir-edge.service weir-secrets.timer'")
    error_message = "The units start, and then the timer of secrets."
  }
}

run "ships_logs" {
  command = plan

  variables {
    logs = { group = "weir-eu-west", region = "eu-west-1" }
  }

  assert {
    condition     = strcontains(output.text, "UNITS='weir-edge.service weir-secrets.timer weir-logs.timer'") && strcontains(output.text, "LOG_GROUP=weir-eu-west")
    error_message = "Logs go to the group."
  }
}

run "refuses_an_unknown_need" {
  command = plan

  variables {
    secrets = { "/etc/weir/x" = { arn = "arn:x", group = "weir", needed = "perhaps" } }
  }

  expect_failures = [var.secrets]
}

run "refuses_a_checksum_of_another_kind" {
  command = plan

  variables {
    release = { bucket = "b", key = "k", region = "eu-west-1", sha256 = "abc" }
  }

  expect_failures = [var.release]
}
