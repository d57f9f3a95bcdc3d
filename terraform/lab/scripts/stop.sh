#!/bin/sh
# stop.sh NAME: ends a process that the lab is not to have any more, or not as it is. Log
# and data stay, for it may come back with another configuration; make lab removes what
# does not.
. "$(dirname "$0")/lib.sh"
enter
dir=$LAB/$1
if [ -n "${BEFORE_STOP:-}" ] && alive "$dir" >/dev/null; then
  (eval "$BEFORE_STOP") || say "lab: $1: before its end: failed, going on"
fi
stop "$dir"
rm -f "$dir/command" "$dir/ready"
