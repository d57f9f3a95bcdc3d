#!/bin/sh
# Builds the OpenTofu that go.mod beside it names into the file given, from the Go
# module proxy: what make soak-tofu runs, and the lab and the tests where there is no
# terraform. The checksum beside the file tells a changed version from a mere checkout,
# which gives every file a new time.
set -eu
file=$1
cd "$(dirname "$0")"
version=$(sed -n 's|.*github.com/opentofu/opentofu v\([^ ]*\).*|\1|p' go.mod)
sum=$(cat go.mod go.sum build.sh | sha256sum | cut -c1-64)
if [ -x "$file" ] && [ "$(cat "$file.sum" 2>/dev/null)" = "$sum" ]; then
  touch "$file"
  exit 0
fi
echo "building opentofu $version into $file (about 3 minutes the first time)"
mkdir -p "$(dirname "$file")"
new=$file.$$
trap 'rm -f "$new" "$new.log"' EXIT
# No cgo: it needs no C compiler then. No symbols: it links faster, and is smaller.
CGO_ENABLED=0 GOFLAGS="${GOFLAGS:-} -mod=readonly" ${GO:-go} build -trimpath -ldflags "-s -w" \
  -o "$new" github.com/opentofu/opentofu/cmd/tofu >"$new.log" 2>&1 || { cat "$new.log" >&2; exit 1; }
mv "$new" "$file"
echo "$sum" >"$file.sum"
