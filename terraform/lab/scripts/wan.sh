#!/bin/sh
# wan.sh REGION=ADDRESS...: joins the Consul datacenters, and waits until each is
# readable from every other. Failed servers that are not listed are forgotten. CONSUL is
# the program.
. "$(dirname "$0")/lib.sh"
enter
printf '%s\n' "$*" >"$LAB/wan"
first=${1#*=}

get() { curl -fsS -m 3 "$@"; }

# One curl asks all of them: one process for each of n × n answers takes half a minute with
# twelve regions.
all=$*
joins=
for pair in $all; do
  [ "${pair#*=}" = "$first" ] || joins="$joins -o /dev/null http://$first:8500/v1/agent/join/${pair#*=}:8302?wan=1"
done
began=$(now)
# shellcheck disable=SC2086 # words
until [ -z "$joins" ] || reason=$(get --fail-early -X PUT $joins 2>&1); do # joining again does no harm
  [ $(($(now) - began)) -lt "$start_limit" ] || fail "not every consul can be joined with $1: $reason"
  sleep 0.1
done

for node in $("$CONSUL" members -wan -http-addr "$first:8500" | awk '$3 == "failed" {print $1}'); do
  case " $*" in *" ${node##*.}="*) continue ;; esac
  get -o /dev/null -X PUT "http://$first:8500/v1/agent/force-leave/$node?wan=1&prune=1" || fail "consul $first does not forget $node"
done

# reads PAIR: waits until the first one reads the catalog of every other.
reads() {
  urls=
  for other in $all; do
    urls="$urls -o /dev/null http://${1#*=}:8500/v1/catalog/nodes?dc=${other%%=*}"
  done
  began=$(now)
  # shellcheck disable=SC2086 # words
  until reason=$(get --fail-early $urls 2>&1); do
    [ $(($(now) - began)) -lt "$start_limit" ] || fail "consul of ${1%%=*} does not reach all others: $reason"
    sleep 0.1
  done
}
waits=
for pair in $all; do
  (trap - EXIT && reads "$pair") &
  waits="$waits $!"
done
for pid in $waits; do wait "$pid" || exit 1; done
