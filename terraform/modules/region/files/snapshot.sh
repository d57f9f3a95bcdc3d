#!/bin/sh
# Copies the region's published rules to S3, for edges that start while Consul is
# unreachable (rules.bootstrap). Copies what has changed, and every hour what has not: the
# object may have been deleted or overwritten.
#
# SNAPSHOT_SIGNATURES also copies who signed them: keep, if anybody has; require, or else
# copies nothing, so that the last signed rules remain.
set -eu
root=${WEIR_ROOT:-} # a test's
new=$(mktemp -d)
trap 'rm -rf "$new"' EXIT
show() { regionctl --fleet "$root/etc/weir/fleet.yaml" rules show "$@"; }
show >"$new/rules.yaml"
regionctl rules validate "$new/rules.yaml" >/dev/null
files=rules.yaml
if [ "${SNAPSHOT_SIGNATURES:-no}" != no ]; then
  # By version: other rules may be active by now.
  if show --signatures "$(sha256sum "$new/rules.yaml" | cut -c1-12)" >"$new/rules.yaml.sig"; then
    files="rules.yaml.sig rules.yaml"
  elif [ "$SNAPSHOT_SIGNATURES" = require ]; then
    echo "weir: the copy stays as it is, since edges refuse rules without a signature" >&2
    exit 1
  fi
fi
for file in $files; do cat "$new/$file"; done >"$new/all"
if cmp -s "$new/all" "$root/var/lib/weir/snapshot" && [ -n "$(find "$root/var/lib/weir/snapshot" -mmin -60)" ]; then
  exit 0
fi
for file in $files; do
  aws s3 cp --only-show-errors --region "$SNAPSHOT_REGION" "$new/$file" "s3://$SNAPSHOT_BUCKET/$file"
done
cp "$new/all" "$root/var/lib/weir/snapshot"
echo "weir: rules copied to $SNAPSHOT_BUCKET"
