#!/bin/sh
# Builds the Consul that go.mod beside it names into the file given, from the Go
# module proxy. The checksum beside the file tells a changed version from a mere
# checkout, which gives every file a new time.
#
# The tests and the instances of terraform/aws run it. It leaves out what neither uses and what takes
# half of the time to build: the clients of a dozen clouds other than AWS, the Kubernetes login,
# and the registration of every Envoy extension. Raft, KV, catalog, ACLs and TLS are untouched.
#
# GOOS and GOARCH choose what it is built for.
set -eu
file=$1
cd "$(dirname "$0")"
go=${GO:-go}
version=$(sed -n 's|.*github.com/hashicorp/consul v\([^ ]*\).*|\1|p' go.mod)
sum=$({ cat go.mod go.sum build.sh && $go env GOOS GOARCH; } | sha256sum | cut -c1-64)
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
modules="consul consul/troubleshoot go-discover"
for part in $modules; do
  $go mod download "github.com/hashicorp/$part"
  cp -R "$($go list -m -f '{{.Dir}}' "github.com/hashicorp/$part")" "$work/$(basename "$part")"
done
chmod -R u+w "$work"
kubernetes=$work/consul/agent/consul/authmethod/kubeauth
rm "$work/consul/agent/xds/z_xds_packages.go" "$work/troubleshoot/proxy/z_xds_packages.go" "$kubernetes"/*.go
echo "package kubeauth" >"$kubernetes/kubeauth.go"
edit() {
  source=$1
  shift
  sed "$@" "$source" >"$work/edited"
  cp "$work/edited" "$source"
}
# Of go-discover's list of providers, AWS stays; Consul adds that of Kubernetes itself.
edit "$work/go-discover/discover.go" -e /aws/b -e '/\/provider\//d' -e '/\.Provider{}/d'
edit "$work/consul/agent/retry_join.go" -e /discoverk8s/d
edit "$work/consul/agent/auto-config/server_addr.go" -e /discoverk8s/d
cp go.mod go.sum "$work"
for part in $modules; do $go mod edit -replace "github.com/hashicorp/$part=$work/$(basename "$part")" "$work/go.mod"; done

# Without symbols it links faster, and is smaller.
GOFLAGS="${GOFLAGS:-} -mod=readonly" $go build -modfile "$work/go.mod" -trimpath -ldflags "-s -w" \
  -o "$new" github.com/hashicorp/consul >"$new.log" 2>&1 || { cat "$new.log" >&2; exit 1; }
mv "$new" "$file"
echo "$sum" >"$file.sum"
