#!/bin/sh
# Gives regions a release, one after another: applies, waits until their groups have replaced their
# instances and regionctl says that all edges run the rules, and goes on. If that does not come, it
# applies the region's previous release, and stops. Repeating it goes on where it stopped.
#
#   ./upgrade.sh KEY SHA256 REGION...
#
# releases.auto.tfvars holds what regions run; WEIR_FLEET names the fleet file.
set -eu
[ $# -ge 3 ] || { echo "usage: $0 KEY SHA256 REGION..." >&2; exit 2; }
key=$1 sum=$2
shift 2
terraform=${TERRAFORM:-terraform}
file=releases.auto.tfvars
before=$(mktemp)
trap 'rm -f "$before" "$before.groups"' EXIT

# with REGION prints the file with the new release of a region.
with() {
  echo "releases = {"
  grep -E '^  "' "$before" | grep -vF "  \"$1\" = " || true
  printf '  "%s" = { key = "%s", sha256 = "%s" }\n}\n' "$1" "$key" "$sum"
}
apply() { $terraform apply -input=false -auto-approve; }

# refreshed REGION waits until the region's groups have replaced their instances.
refreshed() {
  $terraform output -raw groups | grep "^$1 " >"$before.groups"
  while read -r _ aws_region group; do
    tries=0
    while :; do
      status=$(aws autoscaling describe-instance-refreshes --region "$aws_region" --auto-scaling-group-name "$group" \
        --max-records 1 --query 'InstanceRefreshes[0].Status' --output text </dev/null)
      case $status in
        Successful | None) break ;;
        Pending | InProgress | Baking) ;;
        *) echo "$1: the refresh of $group: $status" >&2; return 1 ;;
      esac
      tries=$((tries + 1))
      [ "$tries" -lt 240 ] || { echo "$1: the refresh of $group takes over two hours" >&2; return 1; }
      sleep "${PAUSE:-30}"
    done
  done <"$before.groups"
}

for region in "$@"; do
  echo "$region: $key"
  if [ -e "$file" ]; then cp "$file" "$before"; else echo "releases = {}" >"$before"; fi
  with "$region" >"$file"
  if apply && refreshed "$region" && regionctl rules status --region "$region"; then
    continue
  fi
  echo "$region: back to the previous release; other regions keep theirs" >&2
  cp "$before" "$file"
  apply
  exit 1
done
