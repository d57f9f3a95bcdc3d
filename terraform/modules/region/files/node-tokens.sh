#!/bin/sh
# Gives each edge its own tokens, which end with its instance: one for its Consul agent, with the
# identity of that node, and one for weir; and a certificate for its admin side. Every server does
# so every 15 seconds; repeating it changes nothing.
#
# A token is derived from a secret of the servers and the instance's ID. So the servers agree
# without asking each other, and an edge that starts while Consul has no leader gets tokens that
# become valid once it has one. Only the instance itself may read them in S3. No token is ever an
# argument of a program.
set -eu
root=${WEIR_ROOT:-} # a test's
umask 077
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
made=$root/var/lib/weir-nodes
seed=$root/etc/weir/tokens/nodes
mkdir -p "$made"
[ -s "$seed" ] || { echo "weir: $seed is missing or empty" >&2; exit 1; }

# token KIND ID prints a token. It hashes twice, as HMAC does.
token() {
  inner=$({ cat "$seed" && echo "$1 $2"; } | sha256sum)
  { cat "$seed" && echo "$inner"; } | sha256sum | sed -E 's/^(.{8})(.{4})(.{4})(.{4})(.{12}).*/\1-\2-\3-\4-\5/'
}
object() { echo "s3://$NODES_BUCKET/nodes/$NODES_ROLE:$1/$2"; }
put() { aws s3 cp --only-show-errors --region "$NODES_REGION" - "$(object "$1" "$2")"; }

aws ec2 describe-instances --region "$NODES_REGION" --filters "Name=tag:aws:autoscaling:groupName,Values=$NODES_GROUP" \
  --query 'Reservations[].Instances[].[InstanceId,State.Name]' --output text >"$work/answer"
grep -E '^i-[0-9a-f]+[[:space:]]+[a-z-]+$' "$work/answer" >"$work/instances" || true
# No answer means that every instance is gone.
[ -s "$work/instances" ] || { echo "weir: no instance of $NODES_GROUP is known; nothing changes" >&2; exit 0; }

awk '$2 == "pending" || $2 == "running" { print $1 }' "$work/instances" >"$work/live"
while read -r id; do
  agent=$(token agent "$id")
  edge=$(token edge "$id")
  mark=$(printf '%s %s\n' "$agent" "$edge" | sha256sum)
  [ "$(cat "$made/$id" 2>/dev/null)" != "$mark" ] || continue
  printf '{"acl":{"tokens":{"agent":"%s"}}}\n' "$agent" | put "$id" agent.json
  printf '%s\n' "$edge" | put "$id" consul-token
  echo "$mark" >"$made/$id"
  echo "weir: $id may fetch its tokens"
done <"$work/live"

# A certificate is valid for 90 days. That of any server will do.
status=0
while read -r id; do
  [ -z "$(find "$made/$id.pem" -mtime -60 2>/dev/null)" ] || continue
  if "$root/usr/local/lib/weir/certify" "$NODES_ADMIN" >"$work/admin.pem" </dev/null && put "$id" admin.pem <"$work/admin.pem"; then
    : >"$made/$id.pem"
  else
    status=1
  fi
done <"$work/live"

CONSUL_HTTP_ADDR=${CONSUL_HTTP_ADDR:-127.0.0.1:8500}
CONSUL_HTTP_TOKEN=$(grep -oE '[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}' "$root/etc/consul.d/management.json")
export CONSUL_HTTP_ADDR CONSUL_HTTP_TOKEN
printf 'X-Consul-Token: %s\n' "$CONSUL_HTTP_TOKEN" >"$work/header"
consul acl token list >"$work/tokens"
known=$(cat "$work/tokens")
# create KIND ID GRANT. Another server may be faster.
create() {
  new=$(token "$1" "$2")
  case $known in *"$new"*) return ;; esac
  printf '{"SecretID":"%s","Description":"node-%s %s",%s}' "$new" "$1" "$2" "$3" |
    curl -sSf --max-time 10 -X PUT -H "@$work/header" -d @- "http://$CONSUL_HTTP_ADDR/v1/acl/token" >/dev/null || { status=1; return; }
  echo "weir: token node-$1 of $2 created"
}
while read -r id; do
  create agent "$id" "\"NodeIdentities\":[{\"NodeName\":\"$id\",\"Datacenter\":\"$NODES_DATACENTER\"}]"
  create edge "$id" '"Policies":[{"Name":"weir-edge"}]'
done <"$work/live"

# Delete the tokens of terminated instances, and all but the two newest of the others: an edge may
# still use the previous one. EC2 lists terminated instances for about an hour; an instance that it
# does not list yet may be too new for every answer to include it.
awk '
  /^AccessorID:/ { accessor = $2 }
  /^Description:/ { of = $2 ~ /^node-(agent|edge)$/ ? $2 " " $3 : "" }
  /^Create Time:/ && of != "" { print $3 "T" $4, accessor, of }' "$work/tokens" | sort -r |
  awk -v old="$(date -u -d '1 hour ago' +%Y-%m-%dT%H:%M:%S)" '
    FNR == NR { state[$1] = $2; next }
    state[$4] == "terminated" || !($4 in state) && $1 < old { print $2, $4, "gone"; next }
    ++newer[$3 " " $4] > 2 { print $2, $4, "old" }' "$work/instances" - >"$work/delete"
while read -r accessor id why; do
  if [ "$why" = gone ]; then
    for name in agent.json consul-token admin.pem; do
      aws s3 rm --only-show-errors --region "$NODES_REGION" "$(object "$id" "$name")" </dev/null
    done
    rm -f "$made/$id" "$made/$id.pem"
  fi
  consul acl token delete -accessor-id "$accessor" >/dev/null </dev/null
  echo "weir: a token of $id, which is $why, deleted"
done <"$work/delete"
exit "$status"
