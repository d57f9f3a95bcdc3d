variable "file" {
  description = "The unit."
  type        = string
}

variable "root" {
  description = "The folder that stands for /."
  type        = string
}

variable "programs" {
  description = "Where the unit's programs are on this machine, by their path in it."
  type        = map(string)
}

variable "environment" {
  description = "What the unit's environment file sets."
  type        = map(string)
  default     = {}
}
