#!/bin/sh
# restart.sh PATTERN...: ends processes of the lab politely and starts them again one by
# one, each once the previous one is ready; dead ones are only started. A rebuilt program
# takes effect. LAB is its folder.
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
