#!/bin/sh
# stop.sh NAME: ends a process that the lab no longer needs, or needs with another
# configuration. Its log and data stay, since it may return; make lab removes the rest.
. "$(dirname "$0")/lib.sh"
enter
dir=$LAB/$1
if [ -n "${BEFORE_STOP:-}" ] && alive "$dir" >/dev/null; then
  (eval "$BEFORE_STOP") || say "lab: $1: the command before its end failed; continuing"
fi
stop "$dir"
rm -f "$dir/command" "$dir/ready"
