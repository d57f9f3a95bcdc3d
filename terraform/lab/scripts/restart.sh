#!/bin/sh
# restart.sh PATTERN...: ends processes of the lab politely and starts them again, one
# after another, each once the one before is ready; those that are dead are only started.
# A program that was built anew meanwhile is the one that runs then. LAB is its folder.
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
