#!/bin/sh
# Updates every file of /etc/weir/secrets.list, and of secrets.more if there is one, from its secret. It
# replaces files atomically, and only changed ones. An unreadable secret does not block the others. Exits with 1 if one that is
# needed now is missing, otherwise with 3 if one that is needed soon is, with 4 if only others are.
set -eu
root=${WEIR_ROOT:-} # a test's
status=0
umask 077

# Whether the Consul at $2, whose certificate names $3, knows the token in file $1.
known() {
  if [ "$3" != - ]; then
    export CONSUL_CACERT="$root/etc/weir/ca.pem" CONSUL_TLS_SERVER_NAME="$3"
  fi
  CONSUL_HTTP_TOKEN=$(grep -oE '[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}' "$1") || return 1
  export CONSUL_HTTP_TOKEN CONSUL_HTTP_ADDR="$2"
  timeout 10 consul acl token read -self >/dev/null 2>&1 </dev/null
}

# fetch ARN prints a secret, also that of secret:REGION:NAME, or the object of s3:REGION:BUCKET/KEY.
fetch() {
  from=${1#*:}
  case $1 in
    s3:*) timeout 20 aws s3 cp --only-show-errors --region "${from%%:*}" "s3://${from#*:}" - ;;
    secret:*) timeout 20 aws secretsmanager get-secret-value --region "${from%%:*}" --secret-id "${from#*:}" --query SecretString --output text ;;
    *) timeout 20 aws secretsmanager get-secret-value --region "$(echo "$1" | cut -d: -f4)" --secret-id "$1" --query SecretString --output text ;;
  esac
}

# update brings one file up to date, and exits with this script's status.
update() {
  file=$root$path how=try-reload-or-restart
  mkdir -p -m 0755 "$(dirname "$file")"
  new=$file.new
  if ! fetch "$arn" >"$new" </dev/null || ! [ -s "$new" ]; then
    echo "weir: $arn cannot be read; $path stays as it is" >&2
    rm -f "$new"
    case $needed in later) exit 4 ;; soon) exit 3 ;; *) exit 1 ;; esac
  fi
  if cmp -s "$new" "$file"; then
    rm -f "$new"
    exit 0
  fi
  # The previous token stays valid, so wait until Consul's servers know the new one.
  if [ "$consul" != - ] && [ -s "$file" ] && ! (known "$new" "$consul" "$server"); then
    echo "weir: $consul does not know the new token yet; $path stays as it is"
    rm -f "$new"
    exit 0
  fi
  # At boot the unit has not started. A unit that started without a token may be waiting for it, and
  # would not adopt it on a reload.
  [ -s "$file" ] || how=try-restart
  chgrp "$group" "$new"
  chmod 0640 "$new"
  mv "$new" "$file"
  echo "weir: $path is new"
  [ "$reload" = - ] || systemctl "$how" "$reload" || exit 1
}

# await PID... waits for updates, and keeps the worst status.
await() {
  for pid; do
    wait "$pid" && continue || missing=$?
    case $missing$status in 40 | 30 | 34) status=$missing ;; [34]?) ;; *) status=1 ;; esac
  done
}

# The first list may bring the second.
for list in "$root/etc/weir/secrets.list" "$root/etc/weir/secrets.more"; do
  [ -e "$list" ] || continue
  # A missing file would prevent weir from starting; an empty one is filled in later.
  while read -r path _ _ _ _ _ needed; do
    [ "$needed" = later ] && [ ! -e "$root$path" ] || continue
    mkdir -p -m 0755 "$(dirname "$root$path")"
    (umask 022 && : >"$root$path")
  done <"$list"
  while read -r path group arn reload consul server needed; do
    [ "$needed" != later ] || continue
    update &
    await $!
  done <"$list"
done
# Then those that can be missing, ten at once: silent regions must not add up.
for list in "$root/etc/weir/secrets.list" "$root/etc/weir/secrets.more"; do
  [ -e "$list" ] || continue
  set --
  while read -r path group arn reload consul server needed; do
    [ "$needed" = later ] || continue
    update &
    set -- "$@" $!
    [ $# -lt 10 ] || { await "$@"; set --; }
  done <"$list"
  await "$@"
done
exit "$status"
