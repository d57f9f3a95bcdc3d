#!/bin/sh
# down.sh: ends every process of the lab and removes its folder, even after an apply that
# failed or was killed, or while one is running. It uses neither Terraform nor its state. LAB is
# the folder.
root=$(cd "$(dirname "$0")/../../.." && pwd)
export LAB="${LAB:-$root/.lab}"
# It must not carry the mark that it looks for.
[ -z "${WEIR_LAB_MARK:-}" ] || exec env -u WEIR_LAB_MARK "$0" "$@"
. "$(dirname "$0")/lib.sh"

# Spare this script and its callers.
spared=" "
pid=$$
while [ "$pid" -gt 1 ] 2>/dev/null; do
  spared="$spared$pid "
  pid=$(sed -n 's/^PPid:[[:space:]]*//p' "/proc/$pid/status" 2>/dev/null || echo 0)
done

# marked prints the processes that carry the lab's mark in their environment: scripts,
# Terraform, and what they started, even if its pid file is lost. Nothing else carries it.
marked() {
  for file in $(grep -lszxF "WEIR_LAB_MARK=$LAB" /proc/[0-9]*/environ 2>/dev/null || true); do
    pid=${file#/proc/}
    pid=${pid%/environ}
    case $spared in *" $pid "*) continue ;; esac
    # A zombie has no command line.
    [ -z "$(command_line "$pid")" ] || echo "$pid"
  done
}

if [ -d "$LAB" ]; then
  : >"$LAB/closing"
fi
began=$(now)
while
  left=$(marked)
  for dir in $(processes '*'); do
    pid=$(alive "$dir") || continue
    left="$left $pid"
    # It leads its group, which includes what Redis forks to sync a replica.
    kill -s KILL -- "-$pid" 2>/dev/null || true
  done
  # shellcheck disable=SC2086 # numbers
  set -- $left
  [ $# -gt 0 ]
do
  if [ $(($(now) - began)) -ge 60 ]; then
    fail "these do not end: $*"
  fi
  kill -s KILL "$@" 2>/dev/null || true
  sleep 0.1
done

if [ -d "$LAB" ]; then
  # The mark goes last: see enter.
  find "$LAB" -mindepth 1 -maxdepth 1 ! -name closing -exec rm -rf {} +
  rm -rf "$LAB"
  say "the lab in $LAB is gone"
fi
