# One process of the lab. It outlives Terraform; scripts/start.sh starts it.

resource "terraform_data" "process" {
  input = {
    name        = var.name
    scripts     = var.scripts
    before_stop = var.before_stop
    environment = var.environment
  }
  triggers_replace = [var.command, var.files, var.before]

  provisioner "local-exec" {
    command = "${var.scripts}/start.sh ${var.name}"
    environment = merge(var.environment, {
      COMMAND = join("\n", var.command)
      FILES   = join("\n", [for name, content in var.files : "${name} ${base64encode(content)}"])
      BEFORE  = var.before
      READY   = var.ready
    })
  }

  # A destroy provisioner may refer only to self. It does not run for a process that
  # failed to start: make lab collects those.
  provisioner "local-exec" {
    when        = destroy
    command     = "${self.output.scripts}/stop.sh ${self.output.name}"
    environment = merge(self.output.environment, { BEFORE_STOP = self.output.before_stop })
  }
}
