#!/bin/sh
# wan.sh REGION=ADDRESS...: joins the Consul datacenters, and waits until each is
# readable from every other. Failed servers that are not listed are forgotten. CONSUL is
# the program.
. "$(dirname "$0")/lib.sh"
enter
printf '%s\n' "$*" >"$LAB/wan"
first=${1#*=}

get() { curl -fsS -m 3 "$@"; }

for pair in "$@"; do
  [ "${pair#*=}" = "$first" ] || get -o /dev/null -X PUT "http://$first:8500/v1/agent/join/${pair#*=}:8302?wan=1" || fail "consul $pair cannot be joined with $1"
done

for node in $("$CONSUL" members -wan -http-addr "$first:8500" | awk '$3 == "failed" {print $1}'); do
  case " $*" in *" ${node##*.}="*) continue ;; esac
  get -o /dev/null -X PUT "http://$first:8500/v1/agent/force-leave/$node?wan=1&prune=1" || fail "consul $first does not forget $node"
done

for pair in "$@"; do
  for other in "$@"; do
    began=$(now)
    until reason=$(get -o /dev/null "http://${pair#*=}:8500/v1/catalog/nodes?dc=${other%%=*}" 2>&1); do
      [ $(($(now) - began)) -lt "$start_limit" ] || fail "consul of ${pair%%=*} does not reach that of ${other%%=*}: $reason"
      sleep 0.1
    done
  done
done
