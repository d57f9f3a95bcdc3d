#!/bin/sh
# cluster.sh REGION MASTERS ADDRESS...: forms one Redis Cluster of the servers at these
# addresses, and waits until it is healthy. Initially the first MASTERS are masters; the
# others are replicas of them in turn. In an existing cluster it repairs what differs: a
# new node, one that lost its place, one that is gone for good.
. "$(dirname "$0")/lib.sh"
enter
region=$1 masters=$2
shift 2
addresses=$*
count=$#
made=$LAB/$region/cluster
if [ -e "$made" ] && [ "$(cut -d' ' -f2 "$made")" != "$masters" ]; then
  fail "$region: redis.masters cannot change from $(cut -d' ' -f2 "$made") to $masters while the lab stands; make lab-down, then make lab"
fi

ask() { # ADDRESS COMMAND...
  host=$1
  shift
  redis-cli -h "$host" "$@" 2>&1
}
tell() { # ADDRESS COMMAND...
  answer=$(ask "$@")
  [ "$answer" = OK ] || fail "$region: redis $*: $answer"
}
# view ADDRESS FILTER: what this node knows, through an awk filter of
#   id address@bus flags master ping pong epoch link slots...
view() { ask "$1" cluster nodes | awk "$2"; }
my_id() { ask "$1" cluster myid; }
first_slot() { echo $(($1 * 16384 / masters)); }

for a in $addresses; do
  began=$(now)
  until [ "$(ask "$a" ping)" = PONG ]; do
    [ $(($(now) - began)) -lt "$start_limit" ] || fail "$region: redis $a does not answer: $(ask "$a" ping)"
    sleep 0.1
  done
done

ids=
for a in $addresses; do ids="$ids $(my_id "$a")"; done

# Every node meets every other, which saves rounds of gossip. A fresh node gets its own
# epoch at once: equal ones would be resolved one by one.
n=0
for a in $addresses; do
  n=$((n + 1))
  [ "$(ask "$a" cluster nodes | wc -l)" -gt 1 ] || ask "$a" cluster set-config-epoch $n >/dev/null || true
  known=$(view "$a" '{print $1}')
  m=0
  for id in $ids; do
    m=$((m + 1))
    [ $m -lt $n ] || break
    case $known in *"$id"*) continue ;; esac
    b=$(echo "$addresses" | cut -d' ' -f$m)
    tell "$a" cluster meet "$b" 6379
  done
done

# joined: all know all, by name.
joined() {
  for a in $addresses; do
    known=$(view "$a" '$3 !~ /handshake/ {print $1}')
    for id in $ids; do
      case $known in *"$id"*) ;; *) return 1 ;; esac
    done
  done
}
began=$(now)
until joined; do
  [ $(($(now) - began)) -lt "$start_limit" ] || fail "$region: the redis nodes do not meet: $(ask "$1" cluster nodes)"
  sleep 0.1
done

listed() { case $ids in *"$1"*) return 0 ;; esac; return 1; }

# If a replica's master is gone for good, the replica takes its place without a vote.
for a in $addresses; do
  for master in $(view "$a" '$3 ~ /myself,slave/ {print $4}'); do
    listed "$master" || tell "$a" cluster failover takeover
  done
done

# Nodes that are gone for good, or came back empty and so under another name.
for a in $addresses; do
  for id in $(view "$a" '$3 !~ /myself|handshake/ {print $1}'); do
    listed "$id" || tell "$a" cluster forget "$id"
  done
done

# owner SLOT prints the address of its owner, by the newest claim known to any node.
owner() {
  for a in $addresses; do
    view "$a" '{for (i = 9; i <= NF; i++) if ($i !~ /^\[/) {
      n = split($i, r, "-"); if (r[1] <= '"$1"' && '"$1"' <= r[n]) { split($2, p, ":"); print $7, p[1] }}}'
  done | sort -rn | head -n 1 | cut -d' ' -f2
}
n=0
for a in $addresses; do
  [ $n -lt "$masters" ] || break
  if [ -z "$(owner "$(first_slot $n)")" ]; then
    tell "$a" cluster addslotsrange "$(first_slot $n)" $(($(first_slot $((n + 1))) - 1))
  fi
  n=$((n + 1))
done

# A master without slots must become a replica of the node with its place's slots.
n=0
for a in $addresses; do
  if [ -z "$(view "$a" '$3 ~ /myself/ && ($3 ~ /slave/ || NF > 8) {print}')" ]; then
    began=$(now)
    until master=$(my_id "$(owner "$(first_slot $((n % masters)))")") && [ "$(ask "$a" cluster replicate "$master")" = OK ]; do
      [ $(($(now) - began)) -lt "$start_limit" ] || fail "$region: redis $a becomes nobody's replica: $(ask "$a" cluster replicate "$master")"
      sleep 0.1
    done
  fi
  n=$((n + 1))
done

# healthy prints what is wrong.
healthy() {
  for a in $addresses; do
    info=$(ask "$a" cluster info | tr -d '\r')
    for want in cluster_state:ok cluster_slots_ok:16384 "cluster_known_nodes:$count" "cluster_size:$masters"; do
      case $info in *"$want
"*) ;; *) echo "$a: no $want"; return 1 ;; esac
    done
    [ "$(view "$a" '$3 ~ /slave/' | wc -l)" = $((count - masters)) ] || { echo "$a: knows too few replicas"; return 1; }
    case $(ask "$a" info replication | tr -d '\r') in
      *role:master*) ;;
      *master_link_status:up*) ;;
      *) echo "$a: not synced with its master"; return 1 ;;
    esac
  done
}
began=$(now)
until amiss=$(healthy); do
  [ $(($(now) - began)) -lt "$start_limit" ] || fail "$region: the redis cluster is not healthy: $amiss"
  sleep 0.1
done
printf '%s\n' "$region $masters $addresses" >"$made"
