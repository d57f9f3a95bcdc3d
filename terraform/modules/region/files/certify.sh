#!/bin/sh
# certify NAME prints a new key and a certificate for it, which the fleet's authority signs for 90 days.
set -eu
root=${WEIR_ROOT:-} # a test's
umask 077
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
openssl ecparam -genkey -name prime256v1 -noout -out "$work/key"
openssl req -new -key "$work/key" -subj "/CN=$1" -out "$work/request"
printf 'subjectAltName = DNS:%s, DNS:localhost, IP:127.0.0.1\nkeyUsage = digitalSignature, keyEncipherment\nextendedKeyUsage = serverAuth, clientAuth\n' "$1" >"$work/extensions"
openssl x509 -req -in "$work/request" -CA "$root/etc/consul.d/ca.pem" -CAkey "$root/etc/weir/ca.key" -set_serial "0x$(openssl rand -hex 16)" \
  -days 90 -extfile "$work/extensions" -out "$work/certificate" 2>"$work/log" || { cat "$work/log" >&2; exit 1; }
cat "$work/key" "$work/certificate"
