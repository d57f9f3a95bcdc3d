package terraform_test

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/pkg/certs"
	"github.com/weir-edge/weir/pkg/region"
)

// cloud replaces the modules that need a cloud.
const cloud = `
module "region" {
  source   = "./region"
  for_each = var.regions
  name     = each.key
}
module "dns" {
  source   = "./region"
  for_each = local.name_servers
  name     = each.key
}
output "plan" {
  value = { pairs = local.pairs, routes = local.routes, checks = local.checks, dns = local.dns_addresses, home = local.home, tags = local.tags, certificates = local.certificates, releases = local.releases }
}
`

const cloudRegion = `
variable "name" { type = string }
output "addresses" { value = [for i in range(1, 4) : "${var.name == "us-east" ? "192.0.2" : "203.0.113"}.${i}"] }
output "edge_port" { value = 8080 }
output "edge_admin_name" { value = var.name == "us-east" ? null : "edge-admin.${var.name}.weir" }
output "consul" { value = { addr = "https://${var.name}.internal:8501", datacenter = var.name, server_name = "server.${var.name}.consul" } }
output "secret_arns" { value = { dns-token = "arn:${var.name}" } }
output "autoscaling_groups" { value = { edge = "weir-${var.name}-edge" } }
output "autoscaling_group" { value = "weir-${var.name}-dns" }
output "public_key" { value = var.name == "us-east" ? "MCowBQYDK2VwAyEAGb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE=" : "MCowBQYDK2VwAyEA11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=" }
`

// example is terraform/aws with its example values, and the outputs that follow from
// them.
func example(t *testing.T, values string) *scratch {
	t.Helper()
	m := load(t, "aws")
	s := newScratch(t)
	require.NoError(t, os.Mkdir(filepath.Join(s.dir, "region"), 0o700))
	s.write("region/main.tf", cloudRegion)
	s.write("main.tf", cloud+m.pure(t, func(b *hclsyntax.Block) bool { return b.Type == "output" },
		stand{`aws_acm_certificate_validation\.zone\[name\]\.certificate_arn`, `"arn:aws:acm:issued"`},
		stand{`aws_acm_certificate\.zone\[local\.names\[0\]\]\.domain_validation_options`, `[{ resource_record_name = "_3f2a.edge.example.com.", resource_record_type = "CNAME", resource_record_value = "_9b1c.acm-validations.aws." }]`},
		stand{`data\.aws_servicequotas_service_quota\.addresses\[place\]\.value`, `9`},
		stand{`tls_self_signed_cert\.ca\.cert_pem`, `"CERT"`},
		stand{`aws_eip\.dns\["[^"]*:([^":]*)"\]\.public_ip`, `"198.51.100.$1"`}))
	s.write("terraform.tfvars", read(t, "aws/terraform.tfvars.example"))
	s.write("zz.auto.tfvars", values)
	s.init()
	return s
}

func TestAWSOutputs(t *testing.T) {
	out := example(t, `dns = { mode = "regionctl", zone = "edge.example.com", hosted_zone_id = "Z0123456789" }`).outputs()
	require.Equal(t, "https://edge.example.com/", out["url"])
	require.Equal(t, map[string]any{
		"ns-eu-west.edge.example.com": []any{"198.51.100.0", "198.51.100.1", "198.51.100.2"},
		"ns-us-east.edge.example.com": []any{"198.51.100.0", "198.51.100.1", "198.51.100.2"},
	}, out["name_servers"])
	require.Equal(t, map[string]any{"edge": "weir-us-east-edge", "dns": "weir-us-east-dns"}, out["autoscaling_groups"].(map[string]any)["us-east"])

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
	require.Nil(t, fleet.Regions[1].AdminTLS, "without edges.admin_tls")

	topology, err := region.ParseTopology([]byte(out["topology"].(string)))
	require.NoError(t, err)
	require.Empty(t, topology.CheckSteering())
	require.Equal(t, "edge.example.com", topology.Zone)
	require.Equal(t, &region.Probe{Port: 443, Path: "/", TLS: true}, topology.Probe)
	require.Len(t, topology.Regions, 2)
	require.Len(t, topology.Routers, 2)
	require.Equal(t, "198.51.100.0:53", topology.Routers[1].DNS)
	require.Equal(t, "us-east", topology.Regions[1].Name)
	pop := topology.Regions[1].PoPs[0]
	require.Equal(t, "iad1", pop.Name)
	require.Equal(t, []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2"), netip.MustParseAddr("192.0.2.3")}, pop.Addresses)
	require.Equal(t, &region.Location{Lat: 38.94, Lon: -77.46}, pop.Location)

	plan := out["plan"].(map[string]any)
	require.Equal(t, map[string]any{"eu-west:us-east": map[string]any{"a": "eu-west", "b": "us-east"}}, plan["pairs"])
	require.Len(t, plan["routes"], 6, "three zones, there and back")
	require.Len(t, plan["dns"], 6)
	require.Empty(t, plan["checks"])
	require.Equal(t, "eu-west-1", plan["home"])
	require.Equal(t, map[string]any{"eu-west-1": 9.0, "us-east-1": 9.0}, out["addresses_needed"])
}

const digest = "0123456789012345678901234567890123456789012345678901234567890123"

// Each region has its release in a bucket of its own, and one may get another release first.
func TestAWSReleases(t *testing.T) {
	at := func(region string) string {
		return `aws_region = "` + region + `", ami_id = "ami-1", pop = "` + region + `", upstreams = ["https://o.example.com"], clients = ["198.51.100.0/24"], `
	}
	out := example(t, `regions = {
  eu-west = { `+at("eu-west-1")+`vpc_cidr = "10.1.0.0/16" }
  us-east = { `+at("us-east-1")+`vpc_cidr = "10.2.0.0/16" }
}
release = { buckets = { eu-west-1 = "a", us-east-1 = "b" }, key = "now", sha256 = "`+strings.Repeat("0", 64)+`" }
releases = { us-east = { key = "next", sha256 = "`+digest+`" } }`).outputs()
	require.Equal(t, map[string]any{
		"eu-west": map[string]any{"bucket": "a", "region": "eu-west-1", "key": "now", "sha256": strings.Repeat("0", 64)},
		"us-east": map[string]any{"bucket": "b", "region": "us-east-1", "key": "next", "sha256": digest},
	}, out["plan"].(map[string]any)["releases"])
}

const oneRegion = `regions = { eu-west = { aws_region = "eu-west-1", ami_id = "ami-1", vpc_cidr = "10.1.0.0/16", pop = "dub1", upstreams = ["https://o.example.com"], clients = ["198.51.100.0/24"], zones = 2 } }` + "\n"

func TestAWSWithRoute53(t *testing.T) {
	out := example(t, oneRegion+`dns = { mode = "route53", zone = "edge.example.com", hosted_zone_id = "Z0123456789" }`).outputs()
	require.Equal(t, "http://edge.example.com/", out["url"])
	require.Empty(t, out["name_servers"])
	require.Contains(t, out["topology"], "198.51.100.0/24")
	plan := out["plan"].(map[string]any)
	require.Empty(t, plan["pairs"])
	require.Empty(t, plan["routes"])
	require.Len(t, plan["checks"], 2)
}

// Before the zone is delegated, routers run and Route 53 answers; the delegation then comes
// before the latency records go.
func TestAWSDelegatesLast(t *testing.T) {
	out := example(t, `dns = { mode = "regionctl", zone = "edge.example.com", hosted_zone_id = "Z0123456789", delegate = false }`).outputs()
	plan := out["plan"].(map[string]any)
	require.Len(t, plan["checks"], 6)
	require.Len(t, out["name_servers"], 2)
	require.Len(t, plan["dns"], 6)

	m := load(t, "aws")
	pop := m.text(m.resources["aws_route53_record.pop"].Body.Range())
	require.Contains(t, pop, "depends_on = [aws_route53_record.delegation]")
	require.Contains(t, pop, "create_before_destroy = true")
	require.Equal(t, "local.latency ? 0 : 1", m.text(m.resources["aws_route53_record.delegation"].Body.Attributes["count"].Expr.Range()))
}

// A certificate that ACM issues is renewed by a record in the zone, which the topology has.
func TestAWSRequestsCertificates(t *testing.T) {
	out := example(t, oneRegion+"request_certificates = true\n").outputs()
	require.Equal(t, "https://edge.example.com/", out["url"])
	require.Equal(t, map[string]any{"eu-west": "arn:aws:acm:issued"}, out["plan"].(map[string]any)["certificates"])
	topology, err := region.ParseTopology([]byte(out["topology"].(string)))
	require.NoError(t, err)
	require.Len(t, topology.Records, 1)
	require.Equal(t, region.Record{Name: "_3f2a", Type: "CNAME", Values: []string{"_9b1c.acm-validations.aws"}}, topology.Records[0])
}

// manyRegions is a fleet of n regions, all in one AWS region.
func manyRegions(n int) string {
	text := "regions = {\n"
	for i := range n {
		text += fmt.Sprintf("  r%d = { aws_region = \"eu-west-1\", ami_id = \"ami-1\", vpc_cidr = \"10.%[1]d.0.0/16\", pop = \"p%[1]d\", upstreams = [\"https://o.example.com\"], clients = [\"198.51.%[1]d.0/24\"] }\n", i)
	}
	return text + "}\n"
}

// With one network for all, 50 regions fit into the default quotas, and eight at most run routers.
func TestAWSManyRegions(t *testing.T) {
	out := example(t, manyRegions(50)+`fleet_cidr = "10.0.0.0/10"
dns = { mode = "regionctl", zone = "edge.example.com", hosted_zone_id = "Z0123456789", regions = ["r1", "r2", "r3", "r4"] }`).fault()
	// The example's quota of addresses is that of one region.
	require.Contains(t, out, "eu-west-1 needs 312 and its quota is 9")
	require.NotContains(t, out, "security group")
}

func TestAWSRefuses(t *testing.T) {
	two := func(a, b string) string { return "regions = {\n eu-west = {" + a + "}\n us-east = {" + b + "}\n}\n" }
	at := func(cidr, pop string) string {
		return `aws_region = "eu-west-1", ami_id = "ami-1", vpc_cidr = "` + cidr + `", pop = "` + pop + `", upstreams = ["https://o.example.com"]`
	}
	for values, want := range map[string]string{
		two(at("10.1.0.0/16", "a"), at("10.2.0.0/16", "b")):                               "nothing distinguishes clients",
		two(at("10.1.0.0/16", "a"), at("10.1.16.0/20", "b")):                              "vpc_cidr of two regions overlap",
		two(at("10.1.0.0/16", "a"), at("10.2.0.0/16", "a")):                               "a PoP's name must be unique",
		two(at("10.1.0.0/16", "a"), at("10.2.0.0/16", "b")+`, certificate_arn = "arn:x"`): "either all have a certificate_arn or none",
		two(at("10.1/16", "a"), at("10.2.0.0/16", "b")):                                   "must be an IPv4 network",
		strings.Replace(oneRegion, "eu-west =", `"eu--west" =`, 1):                        "have no dash at the end and no two in a row",
		`regions = {}`:                   "at least one region",
		`name = "Weir"`:                  "1 to 8 lower-case letters",
		`operator_cidrs = ["0.0.0.0/0"]`: "must not be public",
		`releases = { eu-wset = { key = "k", sha256 = "` + digest + `" } }`:                                           "releases: each name must be one of regions",
		`release = { buckets = { eu-west-1 = "a", us-east-1 = "b" }, key = "k", sha256 = "abc" }`:                     "64 hexadecimal digits",
		`release = { buckets = { eu-west-1 = "a" }, key = "k", sha256 = "` + digest + `" }`:                           "a bucket of its own for every AWS region",
		`release = { buckets = { eu-west-1 = "a", us-east-1 = "a" }, key = "k", sha256 = "` + digest + `" }`:          "a bucket of its own for every AWS region",
		two(at("10.1.0.0/16", "a")+`, clients = ["198.51.100.0/24"]`, at("10.2.0.0/16", "b")):                         "Give every region clients",
		`dns = { mode = "regionctl", zone = "edge.example.com", hosted_zone_id = "Z0123456789", steering = "geoip" }`: "dns.steering geoip needs dns.geoip_key",
		manyRegions(19): "more than the 60 rules that AWS allows",
		manyRegions(52) + `fleet_cidr = "10.0.0.0/8"`: "more than the 50 peerings",
		manyRegions(9) + `fleet_cidr = "10.0.0.0/8"`:  "dns.regions must name at most 8",
		`fleet_cidr = "10.2.0.0/16"`:                  "an IPv4 network that contains",
		manyRegions(2) + `dns = { mode = "regionctl", zone = "edge.example.com", hosted_zone_id = "Z0123456789", regions = ["x"] }`: "dns.regions must name",
		`dns = { mode = "bind", zone = "edge.example.com", hosted_zone_id = "Z0123456789" }`:                                        "route53 or regionctl",
		`dns = { mode = "route53", zone = "edge.example.com.", hosted_zone_id = "Z1" }`:                                             "without the last dot",
		`tags = { "aws:x" = "y" }`:                              "AWS reserves keys",
		"request_certificates = true":                           "remove certificate_arn from the regions",
		strings.Replace(oneRegion, "zones = 2", "zones = 4", 1): "eu-west-1 needs 12 and its quota is 9",
	} {
		require.Contains(t, example(t, values).fault(), want, "%s", values)
	}
}
