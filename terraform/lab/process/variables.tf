variable "name" {
  description = "The name, region/process; also the folder of the process below that of the lab."
  type        = string
}

variable "command" {
  description = "The program and its arguments. None may hold a line feed."
  type        = list(string)
}

variable "config" {
  description = "The content of the configuration file. Changing it replaces the process."
  type        = string
  default     = ""
}

variable "config_file" {
  description = "The name of the configuration file, within the folder of the process; none without config."
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
