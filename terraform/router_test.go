package terraform_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/pkg/region"
)

// dnsScratch evaluates modules/dns.
func dnsScratch(t *testing.T) *scratch {
	t.Helper()
	m := load(t, filepath.Join("modules", "dns"))
	s := newScratch(t)
	text := m.pure(t, func(b *hclsyntax.Block) bool { return b.Type == "module" },
		stand{`aws_secretsmanager_secret\.key\.arn`, `"arn:aws:secretsmanager:eu-west-1:1:secret:dns-key"`})
	s.write("main.tf", strings.ReplaceAll(text, `"../cloud-init"`, `"`+relative(t, s.dir, "modules/cloud-init")+`"`)+`
output "dns" { value = module.user_data.text }
`)
	s.write("terraform.tfvars", `
region         = "eu-west"
aws_region     = "eu-west-1"
zone           = "edge.example.com"
network        = { vpc_id = "vpc-1", public_subnet_ids = {}, private_subnet_ids = {} }
allocation_ids = {}
fleet_cidr     = "10.0.0.0/10"
edge_port      = 8080
ami_id         = "ami-1"
ca_secret      = "secret:eu-west-1:weir/fleet/ca"
facts          = { bucket = "nodes", prefix = "routers" }
release        = { bucket = "releases", key = "weir/weir.tar.gz", region = "eu-west-1", sha256 = "`+strings.Repeat("0", 64)+`" }
`)
	s.init()
	return s
}

// knows gives a router what the global root writes for those of a region: what all regions say of
// themselves.
func (m *instance) knows(regions ...string) {
	m.t.Helper()
	g := newGlobal(m.t)
	g.fleet["regions"], g.regions = object{}, object{}
	for i, name := range append([]string{"eu-west"}, regions...) {
		g.fleet["regions"].(object)[name] = object{"aws_region": name + "-1", "vpc_cidr": fmt.Sprintf("10.%d.0.0/16", i)}
		g.regions[name] = fact(name, i+1)
		g.regions[name].(object)["token_arn"] = "arn:aws:secretsmanager:" + name + "-1:1:secret:" + map[bool]string{true: "here", false: "there"}[i == 0]
		g.regions[name].(object)["bucket"] = "nodes"
	}
	g.dns["regions"], g.dns["delegate"] = []string{"eu-west"}, false
	g.write("objects.tf", `output "objects" { value = { for name, texts in local.router_files : name => texts["eu-west"] } }`)
	dir := filepath.Join(m.objects, "nodes/routers")
	require.NoError(m.t, os.MkdirAll(dir, 0o755))
	for name, text := range g.values().outputs()["objects"].(map[string]any) {
		require.NoError(m.t, os.WriteFile(filepath.Join(dir, name), []byte(text.(string)), 0o600))
	}
	m.secret("ca", "CA\n")
	m.secret("dns-key", "KEY\n")
	m.secret("here", "token-1\n")
	m.secret("there", "token-2\n")
}

// router is a booted instance of modules/dns.
func router(t *testing.T, s *scratch) *instance {
	t.Helper()
	i := boot(t, s.outputs()["dns"].(string))
	i.knows("us-east")
	out, err := i.run("/usr/local/lib/weir/boot")
	require.NoError(t, err, "%s", out)
	return i
}

func TestDNSInstance(t *testing.T) {
	i := router(t, dnsScratch(t))
	require.Equal(t, "token-2\n", i.read("/etc/weir/tokens/us-east"))
	require.Equal(t, "KEY\n", i.read("/etc/weir/dns.key"))
	require.Equal(t, `WEIR_DNS_FLAGS="--listen `+ip+`:53 --metrics `+ip+`:9153 --zone edge.example.com --ttl 20s --key /etc/weir/dns.key"`+"\n", i.read("/etc/weir/dns.env"))
	require.Equal(t, `WEIR_DNS_NAME_SERVERS="--ns ns-eu-west.edge.example.com=203.0.113.1,203.0.113.101 --ns ns-us-east.edge.example.com=203.0.113.2,203.0.113.102"`+"\n", i.read("/etc/weir/name-servers.env"))

	fleet, err := region.LoadFleet(i.here("/etc/weir/fleet.yaml"))
	require.NoError(t, err)
	require.Len(t, fleet.Regions, 2)
	require.Equal(t, "server.us-east.consul", fleet.Regions[1].Consul.TLS.ServerName)

	// A router that runs hears of another region. It starts again once it has a file for its token.
	i.knows("us-east", "us-west")
	i.env = append(i.env, "GONE=us-west-1")
	i.write("/systemctl", "", 0o600)
	text, err := i.run("/usr/local/lib/weir/secrets")
	require.Error(t, err, "%s", text)
	require.Contains(t, i.read("/etc/weir/fleet.yaml"), "us-west")
	require.Empty(t, i.read("/etc/weir/tokens/us-west"))
	require.Equal(t, "try-reload-or-restart weir-dns.service\ntry-reload-or-restart weir-dns.service\n", i.read("/systemctl"))
}
