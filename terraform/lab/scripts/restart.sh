#!/bin/sh
# restart.sh PATTERN...: terminates processes of the lab and starts them again one by one, each
# once the previous one is ready. Dead processes are only started. Rebuilt programs take effect.
# LAB is its folder.
root=$(cd "$(dirname "$0")/../../.." && pwd)
export LAB="${LAB:-$root/.lab}"
. "$(dirname "$0")/lib.sh"
enter
[ $# -ge 1 ] || fail "usage: restart.sh PATTERN..."
found=$(processes "$@")
[ -n "$found" ] || fail "no process matches $*; make lab-status lists them"
for dir in $found; do
  echo "restarting ${dir#"$LAB/"}"
  stop "$dir"
  launch "$dir"
  await "$dir"
done
