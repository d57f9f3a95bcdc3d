#!/bin/sh
# Copies the region's published rules to S3, for edges that start while Consul is
# unreachable (rules.bootstrap). Copies only what has changed.
set -eu
root=${WEIR_ROOT:-} # a test's
new=$(mktemp)
trap 'rm -f "$new"' EXIT
regionctl --fleet "$root/etc/weir/fleet.yaml" rules show >"$new"
regionctl rules validate "$new" >/dev/null
cmp -s "$new" "$root/var/lib/weir/snapshot" && exit 0
aws s3 cp --only-show-errors --region "$SNAPSHOT_REGION" "$new" "s3://$SNAPSHOT_BUCKET/rules.yaml"
cp "$new" "$root/var/lib/weir/snapshot"
echo "weir: rules copied to $SNAPSHOT_BUCKET"
