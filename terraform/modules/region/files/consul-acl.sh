#!/bin/sh
# Creates every policy of /etc/weir/policies and its token in this datacenter, and deletes
# all but the two newest tokens of each. Every server does so when it starts and every
# five minutes; repeating it changes nothing. No token is ever an argument of a program.
set -eu
root=${WEIR_ROOT:-} # a test's
umask 077
secret() { grep -oE '[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}' "$1"; }
CONSUL_HTTP_ADDR=${CONSUL_HTTP_ADDR:-127.0.0.1:8500}
CONSUL_HTTP_TOKEN=$(secret "$root/etc/consul.d/management.json")
export CONSUL_HTTP_ADDR CONSUL_HTTP_TOKEN
header=$(mktemp)
trap 'rm -f "$header"' EXIT
printf 'X-Consul-Token: %s\n' "$CONSUL_HTTP_TOKEN" >"$header"

for file in "$root"/etc/weir/policies/*.hcl; do
  name=$(basename "$file" .hcl)
  policy=weir-$name
  if consul acl policy read -name "$policy" >/dev/null 2>&1; then
    consul acl policy update -name "$policy" -rules "@$file" >/dev/null
  else
    consul acl policy create -name "$policy" -rules "@$file" >/dev/null
  fi
  if [ "$name" = agent ]; then
    token=$(secret "$root/etc/consul.d/agent.json")
  else
    token=$(secret "$root/etc/weir/tokens/$name")
  fi
  if ! CONSUL_HTTP_TOKEN=$token consul acl token read -self >/dev/null 2>&1; then
    printf '{"SecretID":"%s","Description":"%s","Policies":[{"Name":"%s"}]}' "$token" "$policy" "$policy" |
      curl -sSf --max-time 10 -X PUT -H "@$header" -d @- "http://$CONSUL_HTTP_ADDR/v1/acl/token" >/dev/null
    echo "weir: token of $policy created"
  fi
  # Nodes that have not fetched the newest still use the one before it.
  consul acl token list | awk -v of="$policy" '
    /^AccessorID:/ { id = $2 }
    /^Description:/ { mine = $2 == of }
    /^Create Time:/ && mine { print $3, $4, id }' | sort -r | tail -n +3 |
    while read -r _ _ id; do
      consul acl token delete -accessor-id "$id" >/dev/null </dev/null
      echo "weir: an old token of $policy deleted"
    done
done
consul reload >/dev/null # of the agent's own token
echo "weir: policies and tokens are in place"
