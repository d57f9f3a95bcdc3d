#!/bin/sh
# up.sh [TFVARS]: starts or repairs the lab: restarts dead processes, lets Terraform create
# missing ones, and prints the addresses. LAB is its folder.
set -eu
root=$(cd "$(dirname "$0")/../../.." && pwd)
export LAB="${LAB:-$root/.lab}"
export LAB_BIN="${LAB_BIN:-$root/bin}" CONSUL="${CONSUL:-$root/.bin/consul}"
# This script also carries the mark by which make lab-down recognizes the lab's
# processes.
[ "${WEIR_LAB_MARK:-}" = "$LAB" ] || WEIR_LAB_MARK=$LAB exec "$0" "$@"
. "$(dirname "$0")/lib.sh"
vars=${1:-}
terraform=${TERRAFORM:-terraform}

for program in "$terraform" redis-server redis-cli curl setsid flock "$CONSUL" "$LAB_BIN/edge" "$LAB_BIN/regionctl" "$LAB_BIN/origin" "$LAB_BIN/distance"; do
  command -v "$program" >/dev/null || fail "$program is missing; make lab builds or installs it"
done
[ -z "$vars" ] || [ -r "$vars" ] || fail "there is no file $vars"
[ -z "$vars" ] || vars=$(cd "$(dirname "$vars")" && pwd)/$(basename "$vars")

# Finish an interrupted lab-down first. Processes of a lab whose folder was removed by
# hand would hold the addresses.
if [ -e "$LAB/closing" ] || [ ! -d "$LAB" ]; then
  "$scripts/down.sh"
fi
mkdir -p "$LAB/scripts"
exec 9>"$LAB/lock"
flock -n 9 || fail "another make lab is running here; wait for it, or end everything with make lab-down"
enter
log=$LAB/terraform.log
started=$(now)

# Dead processes restart with their data. Terraform is not involved, because its state has not
# changed.
healed=
for dir in $(processes '*'); do
  alive "$dir" >/dev/null && continue
  echo "starting ${dir#"$LAB/"} again"
  # A process that cannot start may be about to be removed; if not, the end reports it.
  (launch "$dir") || true
  healed=1
done

export TF_DATA_DIR="$LAB/terraform" TF_IN_AUTOMATION=1 CHECKPOINT_DISABLE=1
export TF_VAR_dir="$LAB" TF_VAR_bin="$LAB_BIN" TF_VAR_consul="$CONSUL"
tf() {
  command=$1
  shift
  "$terraform" -chdir="$scripts/.." "$command" -no-color "$@" 9>&-
}
tf init -input=false -backend-config="path=$LAB/terraform.tfstate" >"$log" 2>&1 || fail "terraform init: $(cat "$log")"

# progress prints a line for each change that Terraform completes.
progress() {
  total=0 count=0
  while IFS= read -r line; do
    printf '%s\n' "$line" >>"$log"
    case $line in
      "Plan: "*)
        # Plan: 41 to add, 0 to change, 2 to destroy.
        # shellcheck disable=SC2046,SC2086 # words
        set -- $(echo "$line" | tr -dc '0-9 ')
        total=$(($1 + ${2:-0} + ${3:-0}))
        ;;
      *": Creation complete after "*) shown "$line" up ;;
      *": Destruction complete after "*) shown "$line" down ;;
      *": Modifications complete after "*) shown "$line" changed ;;
    esac
  done
}
shown() {
  count=$((count + 1))
  # module.region["eu-west"].module.redis["1"].terraform_data.process: -> eu-west redis 1
  name=$(echo "${1%%: *}" | sed 's/\.terraform_data\.process$//; s/module\.region\["\([^"]*\)"\]\./\1 /; s/module\.global\["\([^"]*\)"\]/global \1/; s/module\.//; s/terraform_data\.//; s/\["\([^"]*\)"\]/ \1/')
  printf '[%3d/%d] %3d s  %s: %s\n' "$count" "$total" "$(($(now) - started))" "$name" "$2"
}

echo "the lab in $LAB; Terraform's output is in $log"
# The waits of many small processes overlap; the default is 10 at a time.
{
  tf apply -auto-approve -input=false -parallelism=24 ${vars:+-var-file="$vars"} 2>&1 && echo 0 >"$LAB/scripts/status" || echo $? >"$LAB/scripts/status"
} | progress
status=$(cat "$LAB/scripts/status" 2>/dev/null || echo 1)
rm -f "$LAB/scripts/status"
if [ "$status" != 0 ]; then
  # The scripts' output unchanged: Terraform wraps the lines of its errors.
  said=$(sed -n 's/^.* (local-exec): //p' "$log" | grep -v '^Executing: \[' || true)
  [ -n "$said" ] || said=$(sed -n '/Error: /,$p' "$log" | head -n 60)
  say "$said"
  fail "terraform apply failed. Correct that and run make lab again, or make lab-down; see $log"
fi

# Remove unwanted processes with their data. Terraform has forgotten those that were
# interrupted while they started.
for file in "$LAB"/*/*/log; do
  dir=${file%/log}
  [ -e "$file" ] && ! grep -qxF "${dir#"$LAB/"}" "$LAB/processes" || continue
  stop "$dir"
  rm -rf "$dir"
done

if [ -n "$healed" ]; then
  for dir in $(processes '*'); do await "$dir" || exit 1; done
  for file in "$LAB"/*/cluster; do
    # shellcheck disable=SC2046 # words
    [ ! -e "$file" ] || "$scripts/cluster.sh" $(cat "$file")
  done
  # shellcheck disable=SC2046
  "$scripts/wan.sh" $(cat "$LAB/wan")
fi

# failing prints what status says of edges that do not pass their check, or nothing.
failing() {
  status=$("$LAB_BIN/regionctl" --fleet "$LAB/fleet.yaml" status 2>&1) || true
  edges=$(processes '*/edge-*' | wc -l)
  case $status in *" $((edges)) of $((edges)) edge"*" passing"*) ;; *) echo "$status" ;; esac
}

# This may wait for a PoP to return to DNS, and for a Consul that lost its data to learn of every
# edge again.
if [ -n "$healed" ] || grep -q ' complete after ' "$log"; then
  echo "waiting until every edge passes its check, and the DNS router knows it"
  [ ! -e "$LAB/global/dns/ready" ] || await "$LAB/global/dns" || exit 1
  began=$(now)
  until why=$(failing) && [ -z "$why" ]; do
    [ $(($(now) - began)) -lt "$start_limit" ] || fail "not every edge passes its check after $start_limit s: $why"
    sleep 0.2
  done
fi

cat "$LAB/summary"
echo "up after $(($(now) - started)) s"
