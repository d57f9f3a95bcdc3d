package terraform_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/pkg/certs"
	"github.com/weir-edge/weir/pkg/region"
)

type object = map[string]any

// global is modules/global of two regions.
type global struct {
	*scratch
	fleet, dns, regions object
}

// fact is what a region's root says of itself.
func fact(name string, n int) object {
	addresses := []string{fmt.Sprintf("192.0.2.%d", 10*n), fmt.Sprintf("192.0.2.%d", 10*n+1), fmt.Sprintf("192.0.2.%d", 10*n+2)}
	return object{
		"pop": fmt.Sprintf("pop%d", n), "addresses": addresses, "clients": []string{fmt.Sprintf("198.51.%d.0/24", 100+n)},
		"location": object{"lat": 38.94, "lon": -77.46}, "listener": object{"dns_name": name + ".elb", "zone_id": "Z1", "port": 443}, "vpc_id": "vpc-" + name,
		"route_table_ids": object{"0": "a", "1": "b", "2": "c"}, "consul": object{"addr": "https://" + name + ".internal:8501", "server_name": "server." + name + ".consul"},
		"admin_name": "edge-admin." + name + ".weir", "token_arn": "arn:" + name, "bucket": "nodes-" + name,
		"routers": object{"key": publicKey(int64(n)), "role": "weir-" + name + "-dns", "addresses": []string{fmt.Sprintf("203.0.113.%d", n), fmt.Sprintf("203.0.113.%d", 100+n)}},
	}
}

func newGlobal(t *testing.T) *global {
	t.Helper()
	g := &global{scratch: newScratch(t)}
	require.NoError(t, os.CopyFS(g.dir, os.DirFS("modules/global")))
	g.mock()
	g.reset()
	return g
}

func (g *global) reset() {
	g.dns = object{"mode": "regionctl", "zone": "edge.example.com", "hosted_zone_id": "Z0123456789"}
	g.fleet = object{"home": "eu-west-1", "cidr": "10.0.0.0/10", "dns": g.dns, "regions": object{
		"eu-west": object{"aws_region": "eu-west-1", "vpc_cidr": "10.1.0.0/16"}, "us-east": object{"aws_region": "us-east-1", "vpc_cidr": "10.2.0.0/16"},
	}}
	g.regions = object{"eu-west": fact("eu-west", 1), "us-east": fact("us-east", 2)}
}

func (g *global) values() *global {
	g.t.Helper()
	text, err := json.Marshal(object{"fleet": g.fleet, "regions": g.regions})
	require.NoError(g.t, err)
	g.write("values.auto.tfvars.json", string(text))
	return g
}

// created counts the resources of a plan.
func (g *global) created() map[string]int { return g.values().creates() }

func TestGlobalOutputs(t *testing.T) {
	out := newGlobal(t).values().outputs()
	require.Equal(t, "https://edge.example.com/", out["url"])
	require.Equal(t, object{
		"ns-eu-west.edge.example.com": []any{"203.0.113.1", "203.0.113.101"},
		"ns-us-east.edge.example.com": []any{"203.0.113.2", "203.0.113.102"},
	}, out["name_servers"])

	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "fleet.yaml"), []byte(out["fleet"].(string)), 0o600))
	for _, name := range []string{"eu-west.token", "eu-west.admin", "us-east.token", "us-east.admin", "consul-ca.pem"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte("x"), 0o600))
	}
	fleet, err := region.LoadFleet(filepath.Join(dir, "fleet.yaml"))
	require.NoError(t, err)
	require.Equal(t, "https://us-east.internal:8501", fleet.Regions[1].Consul.Addr)
	require.Equal(t, filepath.Join(dir, "us-east.token"), fleet.Regions[1].Consul.TokenFile)
	require.Equal(t, &certs.Client{CAFile: filepath.Join(dir, "consul-ca.pem"), ServerName: "edge-admin.eu-west.weir"}, fleet.Regions[0].AdminTLS)

	topology, err := region.ParseTopology([]byte(out["topology"].(string)))
	require.NoError(t, err)
	require.Empty(t, topology.CheckSteering())
	require.Equal(t, "edge.example.com", topology.Zone)
	require.Equal(t, &region.Probe{Port: 443, Path: "/", TLS: true}, topology.Probe)
	require.Len(t, topology.Regions, 2)
	require.Len(t, topology.Routers, 2)
	require.Equal(t, "203.0.113.2:53", topology.Routers[1].DNS)
	require.Equal(t, "us-east", topology.Regions[1].Name)
	pop := topology.Regions[1].PoPs[0]
	require.Equal(t, "pop2", pop.Name)
	require.Equal(t, []netip.Addr{netip.MustParseAddr("192.0.2.20"), netip.MustParseAddr("192.0.2.21"), netip.MustParseAddr("192.0.2.22")}, pop.Addresses)
	require.Equal(t, &region.Location{Lat: 38.94, Lon: -77.46}, pop.Location)
}

func TestGlobalPlans(t *testing.T) {
	g := newGlobal(t)
	want := map[string]int{
		"aws_iam_role_policy.routers": 2, "aws_s3_object.routers": 6,
		"aws_secretsmanager_secret.fleet": 4, "aws_secretsmanager_secret_version.fleet": 4, "random_bytes.gossip": 1, "random_bytes.shedder": 1, "tls_private_key.ca": 1, "tls_self_signed_cert.ca": 1,
		"aws_vpc_peering_connection.this": 1, "aws_vpc_peering_connection_accepter.this": 1, "aws_route.peer": 6,
	}
	with := func(more map[string]int) map[string]int {
		all := maps.Clone(want)
		maps.Copy(all, more)
		return all
	}
	delegated := map[string]int{"aws_route53_record.delegation": 1, "aws_route53_record.glue": 2}
	latency := map[string]int{"aws_route53_health_check.address": 6, "aws_route53_health_check.pop": 2, "aws_route53_record.pop": 2}
	require.Equal(t, with(delegated), g.created())

	// Before the zone is delegated, routers run and Route 53 answers.
	g.dns["delegate"] = false
	latency["aws_route53_record.glue"] = 2
	require.Equal(t, with(latency), g.created())

	// A certificate that ACM issues is renewed by a record in the zone.
	g.fleet["request_certificates"] = true
	latency["aws_acm_certificate.zone"], latency["aws_route53_record.validation"] = 1, 1
	require.Equal(t, with(latency), g.created())

	// Before the first region there are only the secrets.
	g.regions = object{}
	for name := range want {
		switch name {
		case "aws_secretsmanager_secret.fleet", "aws_secretsmanager_secret_version.fleet", "random_bytes.gossip", "random_bytes.shedder", "tls_private_key.ca", "tls_self_signed_cert.ca":
		default:
			delete(want, name)
		}
	}
	require.Equal(t, with(map[string]int{"aws_acm_certificate.zone": 1, "aws_route53_record.validation": 1}), g.created())
	g.dns["delegate"] = true
	require.Contains(t, g.values().fault(), "no region with routers is in regions yet")
}

// The delegation comes before the latency records go.
func TestGlobalDelegatesLast(t *testing.T) {
	m := load(t, filepath.Join("modules", "global"))
	pop := m.text(m.resources["aws_route53_record.pop"].Body.Range())
	require.Contains(t, pop, "depends_on = [aws_route53_record.delegation]")
	require.Contains(t, pop, "create_before_destroy = true")
	require.Equal(t, "local.latency ? 0 : 1", m.text(m.resources["aws_route53_record.delegation"].Body.Attributes["count"].Expr.Range()))
}

func TestGlobalRequestsCertificates(t *testing.T) {
	g := newGlobal(t)
	g.fleet["request_certificates"] = true
	topology, err := region.ParseTopology([]byte(g.values().outputs()["topology"].(string)))
	require.NoError(t, err)
	require.Equal(t, []region.Record{{Name: "_3f2a", Type: "CNAME", Values: []string{"_9b1c.acm-validations.aws"}}}, topology.Records)
}

func TestGlobalWithRoute53(t *testing.T) {
	g := newGlobal(t)
	g.dns["mode"] = "route53"
	for _, r := range g.regions {
		delete(r.(object), "routers")
		r.(object)["listener"].(object)["port"] = 80
	}
	out := g.values().outputs()
	require.Equal(t, "http://edge.example.com/", out["url"])
	require.Empty(t, out["name_servers"])
	require.Contains(t, out["topology"], "198.51.101.0/24")
	require.Contains(t, out["topology"], `"steering": "first"`)
}

// Of many regions, of which nine are there yet, eight at most run routers. Route 53 checks each address and each PoP.
func TestGlobalOfManyRegions(t *testing.T) {
	g := newGlobal(t)
	many := func(n int) {
		g.fleet["regions"], g.regions = object{}, object{}
		for i := range n {
			g.fleet["regions"].(object)[fmt.Sprintf("r%d", i)] = object{"aws_region": "eu-west-1", "vpc_cidr": fmt.Sprintf("10.%d.0.0/16", i)}
		}
		for i := range 9 {
			name := fmt.Sprintf("r%d", i)
			g.regions[name] = fact(name, i)
			if i > 3 {
				delete(g.regions[name].(object), "routers")
			}
		}
	}
	many(50)
	g.dns["regions"] = []string{"r0", "r1", "r2", "r3"}
	created := g.created()
	require.Equal(t, 9*8/2, created["aws_vpc_peering_connection.this"])
	require.Equal(t, 4, created["aws_iam_role_policy.routers"])
	delete(g.dns, "regions")
	require.Contains(t, g.values().fault(), "fleet.dns.regions must name at most 8")
	many(52)
	require.Contains(t, g.values().fault(), "1 to 51 regions")
	many(50)
	g.dns["mode"] = "route53"
	t.Setenv("QUOTA", "35")
	require.Contains(t, g.values().fault(), "Too few Route 53 health checks: the fleet needs 36 and the account's quota is 35.")
	t.Setenv("QUOTA", "36")
	require.Equal(t, 27, g.created()["aws_route53_health_check.address"])
}

func TestGlobalRefuses(t *testing.T) {
	us := func(g *global) object { return g.fleet["regions"].(object)["us-east"].(object) }
	facts := func(g *global) object { return g.regions["us-east"].(object) }
	g := newGlobal(t)
	for _, file := range []string{"dns", "locals", "main", "outputs", "peering"} { // without them a plan is fast
		require.NoError(t, os.Remove(filepath.Join(g.dir, file+".tf")))
	}
	for want, change := range map[string]func(g *global){
		"nothing distinguishes clients":         func(g *global) { facts(g)["clients"] = []string{} },
		"vpc_cidr of two regions overlap":       func(g *global) { us(g)["vpc_cidr"] = "10.1.16.0/20" },
		"a PoP's name must be unique":           func(g *global) { facts(g)["pop"] = "pop1" },
		"either all have a certificate or none": func(g *global) { facts(g)["listener"].(object)["port"] = 80 },
		"an IPv4 network of /16 to /22":         func(g *global) { us(g)["vpc_cidr"] = "10.2/16" },
		"the name of an AWS region":             func(g *global) { us(g)["aws_region"] = "east" },
		"outside China and GovCloud":            func(g *global) { us(g)["aws_region"] = "us-gov-west-1" },
		"no two in a row":                       func(g *global) { g.fleet["regions"].(object)["eu--west"] = us(g) },
		"each must be one of fleet.regions":     func(g *global) { g.regions["eu-wset"] = facts(g) },
		"contains the vpc_cidr of every region": func(g *global) { g.fleet["cidr"] = "10.2.0.0/16" },
		"1 to 8 lower-case letters":             func(g *global) { g.fleet["name"] = "Weir" },
		"must not be public":                    func(g *global) { g.fleet["operator_cidrs"] = []string{"0.0.0.0/0"} },
		"AWS reserves keys":                     func(g *global) { g.fleet["tags"] = object{"aws:x": "y"} },
		"require_signed needs verify_keys":      func(g *global) { g.fleet["require_signed"] = true },
		"Ed25519 public keys in PEM":            func(g *global) { g.fleet["verify_keys"] = []string{"ana.pem.pub"} },
		"steering geoip needs geoip_key":        func(g *global) { g.dns["steering"] = "geoip" },
		"regions must name at most 8":           func(g *global) { g.dns["regions"] = []string{"x"} },
		"mode must be route53 or regionctl":     func(g *global) { g.dns["mode"] = "bind" },
		"without the last dot":                  func(g *global) { g.dns["zone"] = "edge.example.com." },
		"health_path begin with /":              func(g *global) { g.dns["health_path"] = "healthz" },
		"route53 or regionctl":                  func(g *global) { g.dns["mode"] = "" },
		"hosted_zone_id the id of a Route 53":   func(g *global) { g.dns["hosted_zone_id"] = "edge" },
		"begin with a letter, have no dash at":  func(g *global) { g.fleet["regions"].(object)["fleet"] = us(g) },
		"1 to 51 regions":                       func(g *global) { g.fleet["regions"] = object{} },
		"ttl must be 1 to 3600 seconds":         func(g *global) { g.dns["ttl"] = 0 },
		"never a private key": func(g *global) {
			g.fleet["verify_keys"] = []string{"-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEIA==\n-----END PRIVATE KEY-----\n"}
		},
		"The given value is not suitable for var": func(g *global) { delete(g.fleet, "home") },
	} {
		g.reset()
		change(g)
		require.Contains(t, g.values().fault(), want)
	}
}
