variable "name" {
  description = "The name, region/process; also the folder of the process below that of the lab."
  type        = string
}

variable "command" {
  description = "The program and its arguments. None may hold a line feed."
  type        = list(string)
}

variable "files" {
  description = "Configuration files, by their path within the folder of the process. Changing one replaces the process. No path may hold a space."
  type        = map(string)
  default     = {}
}

variable "before" {
  description = "A shell command that the process runs first; it does not start if this fails."
  type        = string
  default     = ""
}

variable "ready" {
  description = "A shell command that succeeds once the process is ready."
  type        = string
}

variable "before_stop" {
  description = "A shell command that runs before the process is removed."
  type        = string
  default     = ""
}

variable "scripts" {
  description = "The folder of the scripts."
  type        = string
}

variable "environment" {
  description = "The environment of every script."
  type        = map(string)
}
