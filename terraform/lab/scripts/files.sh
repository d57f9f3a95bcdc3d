#!/bin/sh
# files.sh: writes the fleet file and the topology for regionctl, the targets for
# Prometheus, and for make lab the list of processes and its final message.
. "$(dirname "$0")/lib.sh"
enter
put() {
  cat >"$LAB/$1.new"
  mv "$LAB/$1.new" "$LAB/$1"
}
printf '# Written by make lab.\n%s' "$FLEET" | put fleet.yaml
printf '# Written by make lab.\n%s' "$TOPOLOGY" | put topology.yaml
printf '%s\n' "$PROCESSES" | put processes
printf '%s' "$SUMMARY" | put summary
mkdir -p "$LAB/global/targets"
printf '%s\n' "$TARGETS" | while read -r job groups; do
  printf '%s' "$groups" | put "global/targets/$job.json"
done
