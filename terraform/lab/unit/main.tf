# How a systemd unit starts its service, for a process of the lab: the same command, check,
# folders and limits, with var.root in place of / for /etc and /var/lib.
#
# User, capabilities and sandbox are left to systemd: the lab needs neither it nor root.

locals {
  lines = [for line in split("\n", file(var.file)) : line if can(regex("^[A-Za-z]+=", line))]
  says  = { for line in local.lines : split("=", line)[0] => join("=", slice(split("=", line), 1, length(split("=", line))))... }

  command = [for name in ["ExecStartPre", "ExecStart"] : flatten([
    for word in split(" ", lookup(local.says, name, [""])[0]) :
    startswith(word, "/etc/") || startswith(word, "/var/lib/") ? ["${var.root}${word}"] :
    startswith(word, "$") ? compact(split(" ", lookup(var.environment, trimprefix(word, "$"), ""))) : # unset: no word
    [lookup(var.programs, word, word)]
  ])]

  before = concat(
    [for mask in lookup(local.says, "UMask", []) : "umask ${mask}"],
    # A user that is not root may not raise its own bound.
    [for files in lookup(local.says, "LimitNOFILE", []) : "{ ulimit -n ${files} 2>/dev/null || ulimit -n \"$(ulimit -Hn)\"; }"],
    [for name in lookup(local.says, "StateDirectory", []) : "mkdir -p -m ${lookup(local.says, "StateDirectoryMode", ["0755"])[0]} '${var.root}/var/lib/${name}'"],
    [for path in lookup(local.says, "WorkingDirectory", []) : "cd '${var.root}${path}'"],
    [for words in [local.command[0]] : "'${join("' '", words)}'" if words != [""]],
  )
}
