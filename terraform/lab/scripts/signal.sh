#!/bin/sh
# signal.sh SIGNAL PATTERN...: sends a signal to processes of the lab, to simulate a loss:
# signal.sh KILL 'eu-west/*' for a region, 'eu-west/edge-ams1-*' for a PoP. make lab restarts
# dead processes. STOP and CONT suspend and resume. LAB is its folder.
root=$(cd "$(dirname "$0")/../../.." && pwd)
export LAB="${LAB:-$root/.lab}"
. "$(dirname "$0")/lib.sh"
[ $# -ge 2 ] || fail "usage: signal.sh SIGNAL PATTERN..."
signal=$1
shift
found=$(processes "$@")
[ -n "$found" ] || fail "no process matches $*; make lab-status lists them"
pids=
for dir in $found; do
  if pid=$(alive "$dir"); then
    echo "$signal ${dir#"$LAB/"}"
    pids="$pids -$pid"
  else
    echo "${dir#"$LAB/"} is not running"
  fi
done
# All at once: a region does not fail process by process.
# shellcheck disable=SC2086 # numbers
[ -z "$pids" ] || kill -s "$signal" -- $pids
