#!/bin/sh
# status.sh: lists the lab's processes, and exits with status 1 unless all are running.
# LAB is its folder.
root=$(cd "$(dirname "$0")/../../.." && pwd)
export LAB="${LAB:-$root/.lab}"
. "$(dirname "$0")/lib.sh"
[ -d "$LAB" ] || fail "there is no lab in $LAB; make lab makes one"

printf '%-26s %8s %8s\n' PROCESS PID MEMORY
all=0 dead=0 memory=0
for dir in $(processes '*'); do
  all=$((all + 1))
  if ! pid=$(alive "$dir"); then
    dead=$((dead + 1))
    printf '%-26s %8s\n' "${dir#"$LAB/"}" dead
    continue
  fi
  # Proportional: memory that processes share is counted once.
  kb=$(sed -n 's/^Pss:[^0-9]*\([0-9]*\).*/\1/p' "/proc/$pid/smaps_rollup" 2>/dev/null || true)
  memory=$((memory + ${kb:-0}))
  printf '%-26s %8s %5d MB\n' "${dir#"$LAB/"}" "$pid" $((${kb:-0} / 1024))
done
echo "$((all - dead)) of $all run, $((memory / 1024)) MB"
[ $dead = 0 ] || fail "$dead dead; make lab starts them again"
