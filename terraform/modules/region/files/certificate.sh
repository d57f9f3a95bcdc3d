#!/bin/sh
# Certifies this Consul server, again each time 60 days of the 90 have passed or the authority is another.
set -eu
root=${WEIR_ROOT:-} # a test's
file=$root/etc/consul.d/server.pem
if openssl x509 -checkend 2592000 -noout -in "$file" >/dev/null 2>&1 &&
  openssl verify -CAfile "$root/etc/consul.d/ca.pem" "$file" >/dev/null 2>&1; then
  exit 0
fi
umask 077
"$root/usr/local/lib/weir/certify" "$SERVER_NAME" >"$file.new"
chgrp consul "$file.new"
chmod 0640 "$file.new"
mv "$file.new" "$file"
# Before the first start this does nothing.
systemctl try-reload-or-restart weir-consul.service
echo "weir: this server has a new certificate"
