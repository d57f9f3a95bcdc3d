package region

import (
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/pkg/certs"
	"github.com/weir-edge/weir/pkg/region/consul"
)

func TestLoadFleet(t *testing.T) {
	file := write(t, "fleet.yaml", `
regions:
  - name: eu-west
    consul: {addr: "127.0.0.1:8500", datacenter: eu-west, token_file: "", tls: {}}
  - name: us-east
    consul:
      addr: https://consul.example.com:8501
      token_file: tokens/us-east
      tls: {ca_file: ca.pem, server_name: server.us-east.consul}
    admin_token_file: tokens/admin
    admin_networks: [10.1.0.0/16, "2001:db8::/48"]
  - {name: ap-south, consul: {datacenter: ap-south, prefix: edge/weir}}
keep_versions: 50
`)
	folder := filepath.Dir(file)
	require.NoError(t, os.Mkdir(folder+"/tokens", 0o700))
	for _, name := range []string{"/tokens/us-east", "/tokens/admin", "/ca.pem"} {
		require.NoError(t, os.WriteFile(folder+name, nil, 0o600))
	}
	f, err := LoadFleet(file)
	require.NoError(t, err)
	require.Equal(t, []FleetRegion{
		{Name: "eu-west", Consul: consul.Config{Addr: "127.0.0.1:8500", Datacenter: "eu-west", TLS: &certs.Client{}}},
		{
			Name: "us-east", AdminTokenFile: folder + "/tokens/admin", AdminNetworks: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16"), netip.MustParsePrefix("2001:db8::/48")},
			Consul: consul.Config{
				Addr: "https://consul.example.com:8501", TokenFile: folder + "/tokens/us-east",
				TLS: &certs.Client{CAFile: folder + "/ca.pem", ServerName: "server.us-east.consul"},
			},
		},
		{Name: "ap-south", Consul: consul.Config{Datacenter: "ap-south", Prefix: "edge/weir"}},
	}, f.Regions)

	require.Equal(t, 50, *f.KeepVersions)

	all, err := f.Select(nil)
	require.NoError(t, err)
	require.Equal(t, f.Regions, all)
	some, err := f.Select([]string{"ap-south", "eu-west", "ap-south"})
	require.NoError(t, err)
	require.Equal(t, []FleetRegion{f.Regions[0], f.Regions[2]}, some)
	_, err = f.Select([]string{"eu-west", "mars", "eu-wset"})
	require.EqualError(t, err, "no region \"mars\" in the fleet file; it has eu-west, us-east, ap-south\n"+
		"no region \"eu-wset\" in the fleet file; did you mean eu-west?")
}

func TestLoadFleetRefuses(t *testing.T) {
	for name, row := range map[string]struct{ text, want string }{
		"empty":      {"", "is empty; name at least one region under regions"},
		"no regions": {"regions: []", `regions: must name at least one, as in [{name: eu-west, consul: {addr: "127.0.0.1:8500"}}]`},
		"names": {
			"regions: [{name: EU}, {}, {name: a/b}]",
			"regions[0].name: must be 1 to 64 lower-case letters, digits or - (got \"EU\")\n" +
				"regions[1].name: must be 1 to 64 lower-case letters, digits or - (got \"\")\n" +
				"regions[1].consul: is the same as that of regions[0]; correct addr or datacenter, or remove one of them\n" +
				"regions[2].name: must be 1 to 64 lower-case letters, digits or - (got \"a/b\")\n" +
				"regions[2].consul: is the same as that of regions[0]; correct addr or datacenter, or remove one of them",
		},
		"twice": {
			"regions: [{name: a, consul: {addr: 'h:1'}}, {name: a, consul: {addr: 'h:2'}}]",
			"regions[1].name: a is already the name of regions[0]; give each its own",
		},
		"one Consul": {
			"regions: [{name: a}, {name: b, consul: {addr: 'http://127.0.0.1:8500', prefix: weir}}]",
			"regions[1].consul: is the same as that of regions[0]; correct addr or datacenter, or remove one of them",
		},
		"several faults": {
			"regions: [{name: a}, {name: b, consul: {addr: b, token_file: none, tls: {ca_file: /none, cert_file: /none}}, admin_token_file: none}]",
			"regions[1].consul.addr: must be host:port or https://host:port (got \"b\")\n" +
				"regions[1].consul.token_file: stat FOLDER/none: no such file or directory\n" +
				"regions[1].consul.tls.ca_file: stat /none: no such file or directory\n" +
				"regions[1].consul.tls.cert_file: stat /none: no such file or directory\n" +
				"regions[1].consul.tls: must name both cert_file and key_file, or neither\n" +
				"regions[1].admin_token_file: stat FOLDER/none: no such file or directory\n" +
				"regions[1].admin_networks: is required with admin_token_file: list the networks of the edges' admin listeners, as [10.1.0.0/16]; the token is sent nowhere else",
		},
		"too few versions": {"{regions: [{name: a}], keep_versions: 9}", "keep_versions: must be 0, which keeps all, or at least 10 (got 9)"},
		"second document":  {"regions: [{name: a}]\n---\nregions: []\n", "contains a second YAML document in line 3; remove what follows --- or ..."},
	} {
		t.Run(name, func(t *testing.T) {
			file := write(t, "fleet.yaml", row.text)
			f, err := LoadFleet(file)
			where := regexp.MustCompile("(?m)^" + regexp.QuoteMeta(file) + "(:[13])?: ")
			require.Len(t, where.FindAllString(err.Error(), -1), 1+strings.Count(row.want, "\n"), "each line names the place")
			require.Equal(t, strings.ReplaceAll(row.want, "FOLDER", filepath.Dir(file)), where.ReplaceAllString(err.Error(), ""))
			require.Nil(t, f)
		})
	}
	t.Run("strict", func(t *testing.T) {
		f := func(text, want string) {
			t.Helper()
			_, err := LoadFleet(write(t, "fleet.yaml", text))
			require.ErrorContains(t, err, want)
		}
		f("regions: [{name: a, consol: {}}]", "fleet.yaml:1: regions[0].consol: unknown field; did you mean consul?")
		f("regions:\n  - name: a\n    consul:\n      addr: 'h:1'\n      datacentre: b\n", "fleet.yaml:5: regions[0].consul.datacentre: unknown field; did you mean datacenter?")
		f("regions: [{name: a, name: b}]", "fleet.yaml:1: regions[0].name: is written twice; keep one")
		f("regions: {name: a}", "fleet.yaml:1: regions: must be a list (got a map); put brackets around it")
		f("regions: [", "fleet.yaml:1: is not valid YAML by line 1: did not find expected node content; give the value that is missing, or close the bracket above")
	})
	t.Run("no file", func(t *testing.T) {
		_, err := LoadFleet("/none/fleet.yaml")
		require.EqualError(t, err, "read fleet file: open /none/fleet.yaml: no such file or directory")
	})
}
