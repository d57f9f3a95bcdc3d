#!/bin/sh
# Gives one region a release, and another AMI if one is named: applies its root, waits until its groups have
# replaced their instances, and until regionctl reports that all edges run the rules and all PoPs serve that are
# not drained. If that does not come, it applies the previous release again. No other root is touched. After an
# interruption, repeat it.
#
#   ./upgrade.sh REGION KEY SHA256 [AMI]
#
# REGION is the region's name and the folder of its root. There release.auto.tfvars holds what the
# region runs, and release.before what it ran before an upgrade that has not ended. WEIR_FLEET names
# the fleet file.
set -eu
[ $# = 3 ] || [ $# = 4 ] || { echo "usage: $0 REGION KEY SHA256 [AMI]" >&2; exit 2; }
region=$1
terraform=${TERRAFORM:-terraform}
file=release.auto.tfvars before=release.before
cd "$(dirname "$0")/$region"
work=$(mktemp -d) # only this user's: a plan holds secrets
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM

# planned plans the change, and refuses one that would remove or replace a resource: that is no upgrade.
planned() {
  $terraform plan -input=false -out="$work/plan" && $terraform show -no-color "$work/plan" >"$work/text" || return 1
  others=$(grep -E '^  # [a-z].* (will be destroyed|must be replaced)' "$work/text") || return 0
  printf '%s: nothing is applied, because more than the release would change:\n%s\nReview and apply that first: %s apply\n' \
    "$region" "$others" "$terraform" >&2
  return 1
}

# refreshed waits until the region's groups have replaced their instances.
refreshed() {
  $terraform output -raw groups >"$work/groups" && [ -s "$work/groups" ] || { echo "$region: terraform output groups names no groups" >&2; return 1; }
  while read -r aws_region group; do
    tries=0
    while :; do
      # Nothing if the call fails: ask again.
      status=$(aws autoscaling describe-instance-refreshes --region "$aws_region" --auto-scaling-group-name "$group" \
        --max-records 1 --query 'InstanceRefreshes[0].Status' --output text </dev/null) || status=
      case $status in
        Successful | None) break ;;
        '' | Pending | InProgress | Baking) ;;
        *) echo "$region: the refresh of $group: $status" >&2; return 1 ;;
      esac
      tries=$((tries + 1))
      [ "$tries" -lt 240 ] || { echo "$region: the refresh of $group takes over two hours" >&2; return 1; }
      sleep "${PAUSE:-30}"
    done
  done <"$work/groups"
}

# serving reports whether edges of the region pass their check and its PoPs serve, but for drained ones.
serving() {
  regionctl status --region "$region" -o json >"$work/status" || return 1
  tr '{,}' '\n\n\n' <"$work/status" >"$work/facts"
  passing=$(total nodes_passing) pops=$(total pops) serve=$(total pops_serving) drained=$(total pops_drained)
  [ "${passing:-0}" -gt 0 ] && [ $((serve + drained)) -ge "$pops" ]
}
total() { sed -n "s/^ *\"$1\": *\([0-9][0-9]*\).*/\1/p" "$work/facts"; }

# settled waits up to ten minutes until the region serves with its rules: an edge may be late.
settled() {
  tries=0
  until regionctl rules status --region "$region" && serving; do
    tries=$((tries + 1))
    [ "$tries" -lt 20 ] || { echo "$region: not all edges run the rules, or a PoP does not serve" >&2; return 1; }
    sleep "${PAUSE:-30}"
  done
}

[ -e "$before" ] || { cp "$file" "$before.new" && mv "$before.new" "$before"; }
ami=${4:-$(sed -n 's/^ami_id *= *"\([^"]*\)".*/\1/p' "$before")}
[ -n "$ami" ] || { echo "$region: $before has no ami_id; name the AMI" >&2; exit 1; }
printf 'release = { key = "%s", sha256 = "%s" }\nami_id  = "%s"\n' "$2" "$3" "$ami" >"$file"
if ! planned; then
  mv "$before" "$file"
  exit 1
fi
if $terraform apply -input=false "$work/plan" && refreshed && settled; then
  rm "$before"
  exit 0
fi
echo "$region: back to the previous release" >&2
cp "$before" "$file"
$terraform plan -input=false -out="$work/plan" # apart, so that TF_CLI_ARGS_plan counts here, too
$terraform apply -input=false "$work/plan"
rm "$before"
exit 1
