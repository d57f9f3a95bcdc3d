#!/bin/sh
# Builds the Consul that go.mod beside it names into the file given, from the Go
# module proxy. The checksum beside the file tells a changed version from a mere
# checkout, which gives every file a new time.
#
# It leaves out what no test uses and what takes more than half of the time to build: the
# clients of a dozen clouds (discover/ stands in for them), the Kubernetes login, and the
# registration of every Envoy extension. Raft, KV, catalog, ACLs and TLS are untouched.
set -eu
file=$1
cd "$(dirname "$0")"
go=${GO:-go}
version=$(sed -n 's|.*github.com/hashicorp/consul v\([^ ]*\).*|\1|p' go.mod)
sum=$(cat go.mod go.sum build.sh discover/*.go discover/provider/*/*.go | sha256sum | cut -c1-64)
if [ -x "$file" ] && [ "$(cat "$file.sum" 2>/dev/null)" = "$sum" ]; then
  touch "$file"
  exit 0
fi
echo "building consul $version into $file (2 to 3 minutes the first time)"
mkdir -p "$(dirname "$file")"
new=$file.$$
work=$(mktemp -d)
trap 'rm -rf "$work" "$new" "$new.log"' EXIT

export CGO_ENABLED=0 # no C compiler needed
$go mod download github.com/hashicorp/consul github.com/hashicorp/consul/troubleshoot
for part in consul consul/troubleshoot; do
  cp -R "$($go list -m -f '{{.Dir}}' "github.com/hashicorp/$part")" "$work/$(basename "$part")"
done
chmod -R u+w "$work"
kubernetes=$work/consul/agent/consul/authmethod/kubeauth
rm "$work/consul/agent/xds/z_xds_packages.go" "$work/troubleshoot/proxy/z_xds_packages.go" "$kubernetes"/*.go
echo "package kubeauth" >"$kubernetes/kubeauth.go"
cp go.mod go.sum "$work"
$go mod edit -replace "github.com/hashicorp/consul=$work/consul" -replace "github.com/hashicorp/consul/troubleshoot=$work/troubleshoot" \
  -replace "github.com/hashicorp/go-discover=$PWD/discover" "$work/go.mod"

# Without symbols it links faster, and is smaller.
GOFLAGS="${GOFLAGS:-} -mod=readonly" $go build -modfile "$work/go.mod" -trimpath -ldflags "-s -w" \
  -o "$new" github.com/hashicorp/consul >"$new.log" 2>&1 || { cat "$new.log" >&2; exit 1; }
mv "$new" "$file"
echo "$sum" >"$file.sum"
