#!/bin/sh
# cluster.sh REGION MASTERS ADDRESS...: forms one Redis Cluster of the servers at these
# addresses, and waits until it is healthy. At first the first MASTERS are masters, and the
# others are their replicas in turn. In an existing cluster it repairs nodes that are new,
# lost their place, or are permanently gone.
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
first_slot() { echo $(($1 * 16384 / masters)); }

ids=
for a in $addresses; do
  began=$(now)
  until id=$(ask "$a" cluster myid) && [ ${#id} = 40 ]; do
    [ $(($(now) - began)) -lt "$start_limit" ] || fail "$region: redis $a does not answer: $id"
    sleep 0.1
  done
  ids="$ids $id"
done
# id_of ADDRESS prints the id of its node.
id_of() {
  # shellcheck disable=SC2086 # words
  set -- "$1" $ids
  wanted=$1
  for a in $addresses; do
    shift
    [ "$a" != "$wanted" ] || { echo "$1"; return; }
  done
}

# Every node meets every other, which saves rounds of gossip. A fresh node immediately gets an
# epoch of its own: equal epochs would be resolved one by one.
n=0 answer=
for a in $addresses; do
  n=$((n + 1))
  known=$(view "$a" '{print $1}')
  # shellcheck disable=SC2086 # words
  set -- $known
  [ $# -gt 1 ] || ask "$a" cluster set-config-epoch $n >/dev/null || true
  # shellcheck disable=SC2086
  set -- $ids
  meets=
  for b in $addresses; do
    [ "$b" != "$a" ] || break
    case $known in *"$1"*) ;; *) meets="${meets}cluster meet $b 6379
" ;; esac
    shift
  done
  [ -z "$meets" ] || answer=$(printf '%s' "$meets" | ask "$a") || true
  case $meets$answer in *ERR*) fail "$region: redis $a met no other node: $answer" ;; esac
done

# joined reports whether all nodes know all others by name.
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
  [ $(($(now) - began)) -lt "$start_limit" ] || fail "$region: the redis nodes do not meet: $(ask "$a" cluster nodes)"
  sleep 0.1
done

listed() { case $ids in *"$1"*) return 0 ;; esac; return 1; }

# look stores each node's view, with the node's address before each line.
look() { for a in $addresses; do ask "$a" cluster nodes | sed "s/^/$a /"; done >"$LAB/$region/views"; }

# A replica whose master is permanently gone takes over without a vote.
look
for pair in $(awk '$4 ~ /myself,slave/ {print $1 "=" $5}' "$LAB/$region/views"); do
  listed "${pair#*=}" || tell "${pair%%=*}" cluster failover takeover
done

# Nodes that are permanently gone, or returned empty under another name.
for pair in $(awk '$4 !~ /myself|handshake/ {print $1 "=" $2}' "$LAB/$region/views"); do
  listed "${pair#*=}" || tell "${pair%%=*}" cluster forget "${pair#*=}"
done

# owner SLOT prints the address of the slot's owner, by the newest claim that any node knew at the
# last look.
owner() {
  awk -v slot="$1" '{for (i = 10; i <= NF; i++) if ($i !~ /^\[/) {
    n = split($i, r, "-"); if (r[1] + 0 <= slot + 0 && slot + 0 <= r[n] + 0) { split($3, p, ":"); print $8, p[1] }}}' "$LAB/$region/views" |
    sort -rn | head -n 1 | cut -d' ' -f2
}
look
n=0
for a in $addresses; do
  [ $n -lt "$masters" ] || break
  if [ -z "$(owner "$(first_slot $n)")" ]; then
    tell "$a" cluster addslotsrange "$(first_slot $n)" $(($(first_slot $((n + 1))) - 1))
  fi
  n=$((n + 1))
done

look
# A master without slots must become a replica of the node with its place's slots.
n=0
for a in $addresses; do
  if [ -z "$(awk -v a="$a" '$1 == a && $4 ~ /myself/ && ($4 ~ /slave/ || NF > 9) {print}' "$LAB/$region/views")" ]; then
    began=$(now)
    until master=$(id_of "$(owner "$(first_slot $((n % masters)))")") && [ "$(ask "$a" cluster replicate "$master")" = OK ]; do
      [ $(($(now) - began)) -lt "$start_limit" ] || fail "$region: redis $a did not become a replica: $(ask "$a" cluster replicate "$master")"
      sleep 0.1
      look
    done
  fi
  n=$((n + 1))
done

# healthy prints faults.
healthy() {
  for a in $addresses; do
    info=$(printf 'cluster info\ncluster nodes\ninfo replication\n' | ask "$a" | tr -d '\r')
    for want in cluster_state:ok cluster_slots_ok:16384 "cluster_known_nodes:$count" "cluster_size:$masters"; do
      case $info in *"$want
"*) ;; *) echo "$a: no $want"; return 1 ;; esac
    done
    [ "$(printf '%s\n' "$info" | awk 'NF > 7 && $3 ~ /slave/' | wc -l)" = $((count - masters)) ] || { echo "$a: knows too few replicas"; return 1; }
    case $info in
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
rm -f "$LAB/$region/views"
printf '%s\n' "$region $masters $addresses" >"$made"
