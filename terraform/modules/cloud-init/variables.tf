variable "release" {
  description = "Where instances find the programs: a gzipped tar file in S3 with edge, regionctl and consul in it, and its SHA-256."
  type = object({
    bucket = string
    key    = string
    region = string
    sha256 = string
  })

  validation {
    condition     = can(regex("^[0-9a-f]{64}$", var.release.sha256))
    error_message = "release.sha256 must be 64 hexadecimal digits in lower case, as sha256sum prints them."
  }
}

variable "files" {
  description = "Files to write, by path. In those below /etc/weir and /etc/consul.d the words @PRIVATE_IP@ and @INSTANCE_ID@ are replaced on the instance."
  type = map(object({
    content = string
    mode    = optional(string, "0644")
  }))

  validation {
    condition     = alltrue([for path, file in var.files : startswith(path, "/") && can(regex("^0[0-7]{3}$", file.mode))])
    error_message = "files: a path begins with / and a mode is four octal digits such as 0644."
  }
}

variable "secrets" {
  description = "Files to fill from Secrets Manager, by path: the secret's ARN, or secret:REGION:NAME, or s3:REGION:BUCKET/KEY for an object that may come later than the instance, and the group that may read the file. Fetched at boot and every five minutes. needed says what happens while it is missing at boot: now, nothing starts; soon, the instance waits for a few minutes and starts without it; later, it starts without it at once. A token with a consul (address, and the name in its certificate) replaces the previous one only when that Consul accepts it. reload is a unit to reload after a change. /etc/weir/secrets.more, if it is one of them, lists more in the format of /etc/weir/secrets.list."
  type = map(object({
    arn    = string
    group  = string
    consul = optional(object({ addr = string, server_name = optional(string, "-") }))
    reload = optional(string, "-")
    needed = optional(string, "now")
  }))

  validation {
    condition     = alltrue([for secret in values(var.secrets) : contains(["now", "soon", "later"], secret.needed)])
    error_message = "secrets: needed must be now, soon or later."
  }

  validation {
    condition     = alltrue([for path, secret in var.secrets : startswith(path, "/") && can(regex("^(arn:|secret:[a-z0-9-]+:|s3:[a-z0-9-]+:)[^ ]+$", secret.arn)) && can(regex("^[a-z]+$", secret.group))])
    error_message = "secrets: a path begins with /, an ARN with arn:, secret:REGION: or s3:REGION:, and a group consists of lower-case letters."
  }
}

variable "units" {
  description = "Units of systemd to install, by name."
  type        = map(string)
  default     = {}

  validation {
    condition     = alltrue([for name in keys(var.units) : can(regex("^[a-z-]+\\.(service|timer)$", name))])
    error_message = "units: a name is letters and dashes, and ends with .service or .timer."
  }
}

variable "logs" {
  description = "The CloudWatch log group, and its region, to which the units' logs go. Null: they stay on the instance."
  type        = object({ group = string, region = string })
  default     = null
}

variable "start" {
  description = "Units to enable and start, in this order."
  type        = list(string)

  validation {
    condition     = alltrue([for name in var.start : can(regex("^[a-z-]+\\.(service|timer)$", name))])
    error_message = "start: a name is letters and dashes, and ends with .service or .timer."
  }
}
