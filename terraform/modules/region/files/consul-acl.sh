#!/bin/sh
# Creates every policy of /etc/weir/policies and its token in this datacenter. Every
# server does so when it starts; repeating it changes nothing.
set -eu
root=${WEIR_ROOT:-} # a test's
. "$root/etc/weir/tokens.env"
export CONSUL_HTTP_TOKEN="$MANAGEMENT"

for file in "$root"/etc/weir/policies/*.hcl; do
  name=$(basename "$file" .hcl)
  policy=weir-$name
  if consul acl policy read -name "$policy" >/dev/null 2>&1; then
    consul acl policy update -name "$policy" -rules "@$file" >/dev/null
  else
    consul acl policy create -name "$policy" -rules "@$file" >/dev/null
  fi
  variable=$(echo "$name" | tr '[:lower:]' '[:upper:]')
  eval "secret=\$$variable"
  if ! CONSUL_HTTP_TOKEN=$secret consul acl token read -self >/dev/null 2>&1; then
    consul acl token create -description "$policy" -secret "$secret" -policy-name "$policy" >/dev/null
    echo "weir: token of $policy created"
  fi
done
echo "weir: policies and tokens are in place"
