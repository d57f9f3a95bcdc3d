#!/bin/sh
# Fetches the GeoIP database from S3 if it is another than the one here. The router reads a file
# that is renamed over the previous one within a minute, without a restart. For its first one it restarts.
set -eu
root=${WEIR_ROOT:-} # a test's
file=$root/var/lib/weir-geoip/city.mmdb
env=$root/var/lib/weir-geoip/dns.env
tries=0
until tag=$(timeout 20 aws s3api head-object --region "$GEOIP_REGION" --bucket "$GEOIP_BUCKET" --key "$GEOIP_KEY" --query ETag --output text); do
  # At boot the router waits for this, then starts without a database.
  tries=$((tries + 1))
  [ ! -e "$file" ] && [ "$tries" -lt 10 ] || exit 1
  sleep "${WEIR_PAUSE:-5}"
done
if [ -e "$file" ] && [ "$tag" = "$(cat "$file.tag" 2>/dev/null)" ]; then
  exit 0
fi
timeout 300 aws s3 cp --only-show-errors --region "$GEOIP_REGION" "s3://$GEOIP_BUCKET/$GEOIP_KEY" "$file.new"
# A router that restarted would refuse it. A complete database ends with its description.
if ! tail -c 131072 "$file.new" | grep -qaF MaxMind.com; then
  echo "weir: s3://$GEOIP_BUCKET/$GEOIP_KEY is no complete database in the MaxMind DB format; the previous one stays" >&2
  rm -f "$file.new"
  exit 1
fi
chmod 0644 "$file.new"
mv "$file.new" "$file"
echo "$tag" >"$file.tag"
echo "weir: the GeoIP database is new"
if [ ! -e "$env" ]; then
  sed 's|"$| --geoip /var/lib/weir-geoip/city.mmdb"|' "$root/etc/weir/dns.env" >"$env.new"
  mv "$env.new" "$env"
  # A router that waits for this unit starts with it.
  systemctl --no-block try-restart weir-dns.service
fi
