locals {
  # On every instance: the scripts, and the unit that keeps its secrets fresh.
  common = {
    "/etc/weir/boot.env" = {
      mode = "0644"
      content = join("", [for name, value in {
        RELEASE_BUCKET = var.release.bucket
        RELEASE_KEY    = var.release.key
        RELEASE_REGION = var.release.region
        RELEASE_SHA256 = var.release.sha256
        UNITS          = join(" ", concat(var.start, ["weir-secrets.timer"], var.logs == null ? [] : ["weir-logs.timer"]))
      } : "${name}='${value}'\n"])
    }
    "/etc/weir/secrets.list" = {
      mode    = "0600"
      content = join("", [for path, secret in var.secrets : "${path} ${secret.group} ${secret.arn} ${secret.reload} ${try("${secret.consul.addr} ${secret.consul.server_name}", "- -")} ${secret.needed}\n"])
    }
    "/usr/lib/sysusers.d/weir.conf"            = { mode = "0644", content = file("${path.module}/../../../deploy/systemd/weir.sysusers") }
    "/usr/local/lib/weir/boot"                 = { mode = "0755", content = file("${path.module}/files/boot.sh") }
    "/usr/local/lib/weir/secrets"              = { mode = "0755", content = file("${path.module}/files/secrets.sh") }
    "/etc/systemd/system/weir-boot.service"    = { mode = "0644", content = file("${path.module}/files/weir-boot.service") }
    "/etc/systemd/system/weir-secrets.service" = { mode = "0644", content = file("${path.module}/files/weir-secrets.service") }
    "/etc/systemd/system/weir-secrets.timer"   = { mode = "0644", content = file("${path.module}/files/weir-secrets.timer") }
  }
  logs = var.logs == null ? {} : {
    "/etc/weir/logs.env"                    = { mode = "0644", content = "LOG_GROUP=${var.logs.group}\nLOG_REGION=${var.logs.region}\nINSTANCE=@INSTANCE_ID@\n" }
    "/usr/local/lib/weir/logs"              = { mode = "0755", content = file("${path.module}/files/logs.py") }
    "/etc/systemd/system/weir-logs.service" = { mode = "0644", content = file("${path.module}/files/weir-logs.service") }
    "/etc/systemd/system/weir-logs.timer"   = { mode = "0644", content = file("${path.module}/files/weir-logs.timer") }
  }
  units = { for name, content in var.units : "/etc/systemd/system/${name}" => { mode = "0644", content = content } }

  cloud_config = {
    write_files = [for path, file in merge(local.common, local.logs, local.units, var.files) : {
      path        = path
      permissions = file.mode
      content     = file.content
    }]
    # Not the script itself, which cloud-init would run only once.
    runcmd = [["systemctl", "start", "--no-block", "weir-boot.service"]]
  }
}
