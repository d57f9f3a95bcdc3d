#!/bin/sh
# Certifies the admin side by itself if no Consul server has: without a certificate an edge does not
# start. The load balancer takes it; regionctl takes only the servers', which replaces it.
set -eu
root=${WEIR_ROOT:-} # a test's
file=$root/etc/weir/admin.pem
[ ! -s "$file" ] || exit 0
umask 077
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /CN=weir -days 90 -keyout "$file.key" -out "$file.new" 2>/dev/null
cat "$file.key" >>"$file.new"
rm "$file.key"
chgrp weir "$file.new"
chmod 0640 "$file.new"
mv "$file.new" "$file"
