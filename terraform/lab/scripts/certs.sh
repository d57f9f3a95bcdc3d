#!/bin/sh
# certs.sh REGION: creates the certificate that the region's edges present to other edges, and
# the lab's authority that signs it. It keeps existing files.
. "$(dirname "$0")/lib.sh"
enter
region=$1
authority=$LAB/authority own=$LAB/$region/peer
mkdir -p "$authority" "$own"
exec 9>"$authority/lock"
flock 9 # regions start together

request() { # KEY CERTIFICATE SUBJECT OPTION...: whole once the certificate is there
  key=$1 cert=$2 subject=$3
  shift 3
  [ ! -e "$cert" ] || return 0
  openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 3650 -subj "/CN=$subject" \
    "$@" -keyout "$key" -out "$cert.new" 2>"$authority/log" || fail "openssl: $(cat "$authority/log")"
  mv "$cert.new" "$cert"
}

request "$authority/ca.key" "$authority/ca.crt" "weir lab"
request "$own/edge.key" "$own/edge.crt" "edges of $region" -CA "$authority/ca.crt" -CAkey "$authority/ca.key" \
  -addext basicConstraints=critical,CA:FALSE -addext extendedKeyUsage=serverAuth,clientAuth \
  -addext "subjectAltName=URI:spiffe://weir/$region"
