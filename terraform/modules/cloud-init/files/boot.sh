#!/bin/sh
# Sets up a fresh instance from its files. weir-boot.service runs it until it succeeds;
# repeating it is harmless.
set -eu
root=${WEIR_ROOT:-} # a test's
. "$root/etc/weir/boot.env"

metadata=http://169.254.169.254/latest
token=$(curl -sSf --retry 10 --retry-connrefused -X PUT -H 'X-aws-ec2-metadata-token-ttl-seconds: 300' "$metadata/api/token")
ask() { curl -sSf --retry 10 -H "X-aws-ec2-metadata-token: $token" "$metadata/meta-data/$1"; }
ip=$(ask local-ipv4)
id=$(ask instance-id)

echo "weir: users and folders"
systemd-sysusers
mkdir -p "$root/etc/consul.d" "$root/usr/local/bin"
grep -rlE '@(PRIVATE_IP|INSTANCE_ID)@' "$root/etc/weir" "$root/etc/consul.d" |
  while read -r file; do sed -i -e "s/@PRIVATE_IP@/$ip/g" -e "s/@INSTANCE_ID@/$id/g" "$file"; done

echo "weir: programs of $RELEASE_KEY"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
aws s3 cp --only-show-errors --region "$RELEASE_REGION" "s3://$RELEASE_BUCKET/$RELEASE_KEY" "$work/release.tar.gz"
echo "$RELEASE_SHA256  $work/release.tar.gz" | sha256sum -c -
tar -xzf "$work/release.tar.gz" -C "$work" edge regionctl consul
for program in edge regionctl consul; do
  install -m 0755 "$work/$program" "$root/usr/local/bin/$program"
done

echo "weir: secrets"
# A new role may not be known everywhere yet.
tries=0
until "$root/usr/local/lib/weir/secrets"; do
  missing=$?
  tries=$((tries + 1))
  # Without its tokens an edge has no Consul, as in an outage: it starts with a copy of the rules. A
  # router starts without the token of a region that is lost. The timer keeps asking.
  if [ "$missing" = 4 ] || { [ "$missing" = 3 ] && [ "$tries" -ge 30 ]; }; then
    echo "weir: starting without what is missing"
    break
  fi
  [ "$tries" -lt 30 ] || exit 1
  sleep "${WEIR_PAUSE:-5}"
done
# An empty token is filled in later; a missing file would prevent weir from starting.
while read -r path _ _ _ _ _ needed; do
  case $path$needed in
    /etc/weir/*soon) [ -e "$root$path" ] || : >"$root$path" ;;
  esac
done <"$root/etc/weir/secrets.list"

systemctl daemon-reload
for unit in $UNITS; do
  echo "weir: $unit"
  systemctl enable --now "$unit"
done
