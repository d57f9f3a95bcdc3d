#!/bin/sh
# Saves Consul's data, tokens included, to S3, where that of every hour stays for 30 days under its date.
# Each server does so; the last one wins.
set -eu
root=${WEIR_ROOT:-} # a test's
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
CONSUL_HTTP_TOKEN=$(grep -oE '[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}' "$root/etc/consul.d/management.json")
export CONSUL_HTTP_TOKEN
consul snapshot save "$work/consul.snap" >/dev/null
aws s3 cp --only-show-errors --region "$BACKUP_REGION" - "s3://$BACKUP_BUCKET/consul/$(date -u +%Y-%m-%dT%HZ).snap" <"$work/consul.snap"
echo "weir: Consul's data is saved"
