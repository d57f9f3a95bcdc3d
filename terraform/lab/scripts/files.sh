#!/bin/sh
# files.sh: writes the fleet file and the topology for regionctl, the targets for
# Prometheus, and for make lab the list of processes and its final message. It makes the DNS
# router's key once. REGIONCTL is the program.
. "$(dirname "$0")/lib.sh"
enter
put() {
  cat >"$LAB/$1.new"
  mv "$LAB/$1.new" "$LAB/$1"
}
printf '# Written by make lab.\n%s' "$FLEET" | put fleet.yaml
mkdir -p "$LAB/global/targets"
[ -e "$LAB/global/dns.key" ] || "$REGIONCTL" keys generate "$LAB/global/dns.key" >"$LAB/keys.log" 2>&1 || fail "$(cat "$LAB/keys.log")"
{
  printf '# Written by make lab.\n%s' "$TOPOLOGY"
  printf '"routers": [{"name": "dns", "key": "%s"}]\n' "$(sed -n 2p "$LAB/global/dns.key.pub")"
} | put topology.yaml
printf '%s\n' "$PROCESSES" | put processes
printf '%s' "$SUMMARY" | put summary
printf '%s\n' "$TARGETS" | while read -r job groups; do
  printf '%s' "$groups" | put "global/targets/$job.json"
done
