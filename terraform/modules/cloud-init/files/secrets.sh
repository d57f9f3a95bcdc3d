#!/bin/sh
# Updates every file of /etc/weir/secrets.list from its secret. A file is replaced
# whole, and only if it changes. One unreadable secret does not keep the others from
# being fetched.
set -eu
root=${WEIR_ROOT:-} # a test's
status=0
umask 077
while read -r path group arn; do
  file=$root$path
  mkdir -p -m 0755 "$(dirname "$file")"
  new=$file.new
  region=$(echo "$arn" | cut -d: -f4)
  if ! aws secretsmanager get-secret-value --region "$region" --secret-id "$arn" \
    --query SecretString --output text >"$new" || ! [ -s "$new" ]; then
    echo "weir: $arn cannot be read; $path stays as it is" >&2
    rm -f "$new"
    status=1
    continue
  fi
  if cmp -s "$new" "$file"; then
    rm -f "$new"
    continue
  fi
  chgrp "$group" "$new"
  chmod 0640 "$new"
  mv "$new" "$file"
  echo "weir: $path is new"
done <"$root/etc/weir/secrets.list"
exit "$status"
