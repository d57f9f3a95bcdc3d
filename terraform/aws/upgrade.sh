#!/bin/sh
# Gives regions a release, one after another: applies, waits until their groups have replaced their
# instances and regionctl says that all edges run the rules, and goes on. If that does not come, it
# applies the region's previous release, and stops. Repeating it goes on where it stopped.
#
#   ./upgrade.sh KEY SHA256 REGION...
#
# releases.auto.tfvars holds what regions run, releases.before.REGION what they ran before an upgrade
# that has not ended; WEIR_FLEET names the fleet file.
set -eu
[ $# -ge 3 ] || { echo "usage: $0 KEY SHA256 REGION..." >&2; exit 2; }
key=$1 sum=$2
shift 2
terraform=${TERRAFORM:-terraform}
file=releases.auto.tfvars
work=$(mktemp -d) # only this user's: a plan holds secrets
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM

# with REGION prints the file with the new release of a region.
with() {
  echo "releases = {"
  grep -E '^  "' "$before" | grep -vF "  \"$1\" = " || true
  printf '  "%s" = { key = "%s", sha256 = "%s" }\n}\n' "$1" "$key" "$sum"
}

# planned REGION plans the change, and refuses one that is not only this region's.
planned() {
  $terraform plan -input=false -out="$work/plan" && $terraform show -no-color "$work/plan" >"$work/text" || return 1
  others=$(grep -E '^  # [a-z].* (will|must) ' "$work/text" | grep -v ' will be read ' |
    grep -vF -e "# module.region[\"$1\"]." -e "# module.dns[\"$1\"].") || return 0
  printf '%s: nothing is applied, because more than this region would change:\n%s\nReview and apply that first: %s apply\n' \
    "$1" "$others" "$terraform" >&2
  return 1
}

# refreshed REGION waits until the region's groups have replaced their instances.
refreshed() {
  $terraform output -raw groups >"$work/all" && grep "^$1 " "$work/all" >"$work/groups" ||
    { echo "$1: terraform output groups does not name its groups" >&2; return 1; }
  while read -r _ aws_region group; do
    tries=0
    while :; do
      # Nothing if the call fails: ask again.
      status=$(aws autoscaling describe-instance-refreshes --region "$aws_region" --auto-scaling-group-name "$group" \
        --max-records 1 --query 'InstanceRefreshes[0].Status' --output text </dev/null) || status=
      case $status in
        Successful | None) break ;;
        '' | Pending | InProgress | Baking) ;;
        *) echo "$1: the refresh of $group: $status" >&2; return 1 ;;
      esac
      tries=$((tries + 1))
      [ "$tries" -lt 240 ] || { echo "$1: the refresh of $group takes over two hours" >&2; return 1; }
      sleep "${PAUSE:-30}"
    done
  done <"$work/groups"
}

for region in "$@"; do
  echo "$region: $key"
  before=releases.before.$region
  for left in releases.before.*; do
    [ ! -e "$left" ] || [ "$left" = "$before" ] ||
      { echo "the upgrade of ${left#releases.before.} was interrupted; run $0 for it first" >&2; exit 1; }
  done
  if [ ! -e "$before" ]; then
    if [ -e "$file" ]; then cp "$file" "$file.new"; else echo "releases = {}" >"$file.new"; fi
    mv "$file.new" "$before"
  fi
  with "$region" >"$file"
  if ! planned "$region"; then
    mv "$before" "$file"
    exit 1
  fi
  if $terraform apply -input=false "$work/plan" && refreshed "$region" && regionctl rules status --region "$region"; then
    rm "$before"
    continue
  fi
  echo "$region: back to the previous release; other regions keep theirs" >&2
  cp "$before" "$file"
  $terraform apply -input=false -auto-approve
  rm "$before"
  exit 1
done
