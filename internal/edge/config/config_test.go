package config

import (
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/edge/decide"
	"github.com/weir-edge/weir/internal/edge/proxy"
	"github.com/weir-edge/weir/internal/edge/recent"
	"github.com/weir-edge/weir/pkg/limiter/rules"
	"github.com/weir-edge/weir/pkg/region/consul"
)

// Each file of testdata/bad-config begins with the error it must give, in comments.
func TestBadConfig(t *testing.T) {
	files, err := filepath.Glob("testdata/bad-config/*.yaml")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			data, err := os.ReadFile(file)
			require.NoError(t, err)
			var want, rest []string
			for line := range strings.Lines(string(data)) {
				if text, isComment := strings.CutPrefix(line, "# "); isComment {
					want = append(want, strings.TrimSuffix(text, "\n"))
				} else {
					rest = append(rest, line)
				}
			}
			// Strip the comments, so that the lines in errors do not count them.
			_, err = Parse([]byte(strings.Join(rest, "")))
			require.EqualError(t, err, strings.Join(want, "\n"))
		})
	}
}

func TestConfigTakesAnchors(t *testing.T) {
	c, err := Parse([]byte("upstreams: [{url: &origin \"http://127.0.0.1:9000\"}, {url: *origin, group: api}]\nroutes: [{group: api, match: {paths: [/api]}}]\n" +
		"rules: {file: rules.yaml}\nstore: {redis: {mode: single, addrs: [\"127.0.0.1:7000\"]}}\nserver: {max_connections: 1e3}\n"))
	require.NoError(t, err)
	require.Equal(t, c.Upstreams[0].URL, c.Upstreams[1].URL)
	require.Equal(t, 1000, c.Server.MaxConnections)
}

// An empty token file may be filled later, so a node starts with one.
func TestCheckFindsAnEmptyToken(t *testing.T) {
	dir := t.TempDir()
	token, rules := filepath.Join(dir, "token"), filepath.Join(dir, "rules.yaml")
	require.NoError(t, os.WriteFile(token, []byte("\n"), 0o600))
	require.NoError(t, os.WriteFile(rules, []byte("rules: []"), 0o600))
	c, err := Parse([]byte(least))
	require.NoError(t, err)
	c.Rules.File, c.Listen.AdminTokenFile = rules, token
	_, err = Check(c)
	require.ErrorContains(t, err, "listen.admin_token_file: "+token+" holds no token")
}

const least = "upstreams: [{url: \"http://127.0.0.1:9000\"}]\nrules: {file: rules.yaml}\nstore: {redis: {addrs: [\"127.0.0.1:7000\"]}}\n"

func TestDefaults(t *testing.T) {
	c, err := Parse([]byte(least))
	require.NoError(t, err)
	host, err := os.Hostname()
	require.NoError(t, err)
	require.Equal(t, &Config{
		Node:      Node{ID: host},
		Listen:    Listen{Public: "127.0.0.1:8080", Admin: "127.0.0.1:8081", HTTP2: HTTP2{MaxStreams: 100}},
		Server:    Server{16384, 1 << 30, 100000, 0, 10 * time.Second, time.Minute, 75 * time.Second, PathsMatchAll},
		Upstreams: []Upstream{{URL: "http://127.0.0.1:9000"}},
		Upstream:  Forward{2 * time.Second, 30 * time.Second, time.Minute, 30 * time.Second, 1024, 3, 5 * time.Second, "", 16384, []string{"websocket"}, 5 * time.Minute, "via", proxy.HealthCheck{Interval: 5 * time.Second, Timeout: time.Second, Healthy: 2, Unhealthy: 3}, nil},
		Store: Store{
			Kind: "redis", Timeout: 25 * time.Millisecond, DeniedMemory: 100000, MaxKeys: 1000000,
			Redis: Redis{Mode: "cluster", Addrs: []string{"127.0.0.1:7000"}},
		},
		Rules:    Rules{Source: "file", File: "rules.yaml", Cache: "/var/lib/weir/rules.json", Required: true},
		Consul:   Consul{Register: true},
		Shedder:  Shedder{Source: "config"},
		Recent:   recent.Config{Share: 1},
		Log:      Log{"info"},
		Policy:   Policy{Source: "file", Subjects: 100_000},
		Shutdown: Shutdown{time.Second, 3 * time.Second},
	}, c)
	require.Less(t, c.Shutdown.Delay+c.Shutdown.Timeout, 5*time.Second)
}

func TestLoadConfig(t *testing.T) {
	_, err := Load("testdata/nothing.yaml")
	require.EqualError(t, err, "read configuration: open testdata/nothing.yaml: no such file or directory")
	_, err = Load("testdata/bad-config/store-kind.yaml")
	require.EqualError(t, err, `testdata/bad-config/store-kind.yaml:4: store.kind: must be redis or memory (got "mysql")`)
}

func TestWhatIsRegistered(t *testing.T) {
	taken := func(addr string) net.Addr {
		a, err := net.ResolveTCPAddr("tcp", addr)
		require.NoError(t, err)
		return a
	}
	f := func(listen Listen, advertise, advertiseAdmin, address string, port int, admin, check string) {
		t.Helper()
		c := Defaults()
		listen.HTTP2 = c.Listen.HTTP2
		c.Node, c.Listen = Node{"n", "r", "p"}, listen
		c.Consul.Advertise, c.Consul.AdvertiseAdmin = advertise, advertiseAdmin
		c.Rules = Rules{Source: "consul", Cache: "x"}
		c.Store.Kind, c.Upstreams = "memory", []Upstream{{URL: "http://a"}}
		if c.Listen.AdminTokenFile = ""; listen.Admin[0] != '1' {
			c.Listen.AdminTokenFile = "config_test.go"
		}
		require.NoError(t, c.Validate())
		r, err := c.Registration(taken("127.0.0.1:18080"), taken("127.0.0.1:18081"))
		require.NoError(t, err)
		require.Equal(t, consul.Registration{ID: "n", Address: address, Port: port, Admin: admin, Region: "r", PoP: "p", CheckURL: check}, r)
		require.NoError(t, r.Validate())
	}
	local := Listen{Public: "127.0.0.1:0", Admin: "127.0.0.1:0"}
	all := Listen{Public: ":0", Admin: "[::]:0"}
	f(local, "", "", "127.0.0.1", 18080, "127.0.0.1:18081", "http://127.0.0.1:18081/readyz")
	f(local, "edge-3.example.com", "10.0.0.1", "edge-3.example.com", 18080, "10.0.0.1:18081", "http://127.0.0.1:18081/readyz")
	f(local, "203.0.113.1:443", "10.0.0.1:9000", "203.0.113.1", 443, "10.0.0.1:9000", "http://127.0.0.1:18081/readyz")
	f(all, "2001:db8::1", "2001:db8::2", "2001:db8::1", 18080, "[2001:db8::2]:18081", "http://[2001:db8::2]:18081/readyz")
	f(all, "[2001:db8::1]:443", "edge-3:9000", "2001:db8::1", 443, "edge-3:9000", "http://edge-3:9000/readyz")
}

// manual returns a page of the docs.
func manual(t *testing.T, page string) string {
	t.Helper()
	text, err := os.ReadFile("../../../docs/" + page)
	require.NoError(t, err)
	return string(text)
}

func TestConfigDocNamesEveryField(t *testing.T) {
	text := manual(t, "reference/configuration.md")
	for _, path := range fieldPaths(reflect.TypeFor[Config](), "") {
		require.Contains(t, text, "| `"+path+"` |", "run make reference")
	}
}

// fieldPaths lists the fields as written in a file: server.read_timeout.
func fieldPaths(t reflect.Type, prefix string) []string {
	var paths []string
	for i := range t.NumField() {
		f := t.Field(i)
		name, option, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		if option == "inline" {
			inner := f.Type
			if inner.Kind() == reflect.Pointer {
				inner = inner.Elem()
			}
			paths = append(paths, fieldPaths(inner, prefix)...)
			continue
		}
		if name == "" || name == "-" {
			continue
		}
		path := prefix + name
		inner := f.Type
		switch {
		case prefix == "shedder.": // its row describes its contents
			paths = append(paths, path)
			continue
		case inner.Kind() == reflect.Pointer:
			inner = inner.Elem()
		case inner.Kind() == reflect.Slice && inner.Elem().Kind() == reflect.Struct:
			inner, path = inner.Elem(), path+"[]"
		}
		if inner.Kind() == reflect.Struct {
			paths = append(paths, fieldPaths(inner, path+".")...)
			continue
		}
		paths = append(paths, path)
	}
	return paths
}

func TestConfigDocExamplesParse(t *testing.T) {
	examples := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(manual(t, "CONFIG.md"), -1)
	require.NotEmpty(t, examples)
	// The files that they name may be missing here.
	missing := regexp.MustCompile(`(?m)^[a-z_.\[\]0-9]*_file: stat .*: no such file or directory\n?`)
	for _, e := range examples {
		if _, err := Parse([]byte(e[1])); err != nil {
			require.Empty(t, missing.ReplaceAllString(err.Error(), ""), e[1])
		}
	}
}

func TestTrustedProxies(t *testing.T) {
	f := func(list, fault string) {
		t.Helper()
		_, err := Parse([]byte(least + "\ntrusted_proxies: [" + list + "]\n"))
		if fault == "" {
			require.NoError(t, err)
			return
		}
		require.EqualError(t, err, "trusted_proxies[0]"+fault)
	}
	f(`10.0.0.0/8, 192.0.2.1, "2001:db8::/32", "::1"`, "")
	f("any", "")
	f(`"::ffff:10.0.0.0/104"`, ": is an IPv4 network written as IPv6, which no peer is in; write 10.0.0.0/8")
	f(`"::ffff:10.0.0.1"`, ": is an IPv4 network written as IPv6, which no peer is in; write 10.0.0.1/32")
	f("0.0.0.0/0", ": 0.0.0.0/0 trusts every client to state its own address; write any if only your proxies can reach this node")
	f(`"::/0"`, ": ::/0 trusts every client to state its own address; write any if only your proxies can reach this node")
	f("10.0.0.1/8", ": 10.0.0.1/8 has bits set beyond the network; write 10.0.0.0/8, or the address alone")
	f("proxy", `: must be an address or a network such as 10.0.0.0/8 (got "proxy")`)

	c, err := Parse([]byte(least + "\ntrusted_proxies: [any]\n"))
	require.NoError(t, err)
	d := decide.Decider{Trusted: c.Trusted}
	require.True(t, d.Trusts(netip.MustParseAddr("203.0.113.1")))
	require.True(t, d.Trusts(netip.MustParseAddr("2001:db8::1")))
}

// What a group has of its own stands in place of upstream's, and reaches its pool.
func TestGroupsThatDiffer(t *testing.T) {
	c, err := Parse([]byte("upstreams: [{url: \"http://a\"}, {url: \"http://b\", group: search}, {url: \"http://c\", group: static}]\n" +
		"routes: [{match: {paths: [/search]}, group: search}, {match: {paths: [/static]}, group: static}]\n" +
		"rules: {file: rules.yaml}\nstore: {kind: memory}\nupstream:\n" +
		"  groups: {search: {health_check: {path: /ping, timeout: 2s}}, static: {upgrade: [], health_check: {}}}\n" +
		"  health_check: {path: /healthz, healthy: 9}\n  upgrade: [websocket, chat]\n"))
	require.NoError(t, err)
	f := func(group string, check proxy.HealthCheck, upgrades ...string) {
		t.Helper()
		pc, _ := c.proxy(group)
		require.Equal(t, check, pc.Check)
		require.ElementsMatch(t, upgrades, pc.Upgrades)
	}
	f("default", proxy.HealthCheck{Path: "/healthz", Interval: 5 * time.Second, Timeout: time.Second, Healthy: 9, Unhealthy: 3}, "websocket", "chat")
	f("search", proxy.HealthCheck{Path: "/ping", Interval: 5 * time.Second, Timeout: 2 * time.Second, Healthy: 2, Unhealthy: 3}, "websocket", "chat")
	f("static", Defaults().Upstream.HealthCheck)
}

// With any, every client is a trusted proxy; without a list nobody is.
func TestTrustWarnings(t *testing.T) {
	f := func(text string, want ...string) {
		t.Helper()
		c, err := Parse([]byte(least + text))
		require.NoError(t, err)
		got := c.trustWarnings()
		require.Len(t, got, len(want))
		for i := range want {
			require.Contains(t, got[i], want[i])
			require.Contains(t, c.Warnings(), got[i])
		}
	}
	const limited, behind = "server: {max_connections_per_client: 9}\n", "listen: {proxy_protocol: {from: [10.0.0.0/8]}}\n"
	f("trusted_proxies: [any]\n")
	f("tier_header: X-Tier\n", "tier_header: nobody may state a tier in X-Tier, because trusted_proxies is empty; ")
	f("tier_header: X-Tier\ntrusted_proxies: [10.0.0.0/8]\n")
	f("trusted_proxies: [10.0.0.0/8]\n" + limited + behind)
	f("trusted_proxies: [10.0.0.0/8, any]\n"+limited, "server.max_connections_per_client: 9 has no effect: trusted_proxies is any, ")
	f("trusted_proxies: [any]\n"+behind, "trusted_proxies: any includes every client that a PROXY header names, ")
	f("trusted_proxies: [any]\n"+limited+behind, "server.max_connections_per_client: ", "trusted_proxies: ")
}

func TestTierWarnings(t *testing.T) {
	set, err := rules.Load([]byte("rules:\n  - {id: a, key: [], limit: 1, window: 1s, tiers: {pro: 2, free: 1}}\n  - {id: b, key: [], limit: 1, window: 1s, tiers: {\"risk:hostile\": 1}}\n"))
	require.NoError(t, err)
	var c Config
	require.Equal(t, []string{"rule a: tiers.free: no request has a tier, because tier_header is not set; set it to the header in which your proxy states the tier"}, c.ruleWarnings(set))
	c.TierHeader = "X-Tier"
	require.Empty(t, c.ruleWarnings(set))
}
