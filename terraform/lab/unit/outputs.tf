output "command" {
  description = "The program and its arguments: ExecStart."
  value       = local.command[1]
}

output "before" {
  description = "A shell command that prepares the start: ExecStartPre, UMask, LimitNOFILE, StateDirectory, WorkingDirectory."
  value       = join(" &&\n", local.before)
}
