package edge

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
	"github.com/weir-edge/weir/internal/edge/follow"
	"github.com/weir-edge/weir/internal/edge/proxy"
	"github.com/weir-edge/weir/internal/edge/recent"
	"github.com/weir-edge/weir/pkg/certs"
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
			_, err = ParseConfig([]byte(strings.Join(rest, "")))
			require.EqualError(t, err, strings.Join(want, "\n"))
		})
	}
}

func TestConfigTakesAnchors(t *testing.T) {
	c, err := ParseConfig([]byte("upstreams: [{url: &origin \"http://127.0.0.1:9000\"}, {url: *origin, group: api}]\nroutes: [{group: api, match: {paths: [/api]}}]\n" +
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
	require.NoError(t, os.WriteFile(rules, []byte(oneRule), 0o600))
	c, err := ParseConfig([]byte(leastConfig))
	require.NoError(t, err)
	c.Rules.File, c.Listen.AdminTokenFile = rules, token
	_, err = Check(c)
	require.ErrorContains(t, err, "listen.admin_token_file: "+token+" holds no token")
}

const leastConfig = "upstreams: [{url: \"http://127.0.0.1:9000\"}]\nrules: {file: rules.yaml}\nstore: {redis: {addrs: [\"127.0.0.1:7000\"]}}\n"

func TestDefaults(t *testing.T) {
	c, err := ParseConfig([]byte(leastConfig))
	require.NoError(t, err)
	host, err := os.Hostname()
	require.NoError(t, err)
	require.Equal(t, &Config{
		Node:      NodeConfig{ID: host},
		Listen:    ListenConfig{Public: "127.0.0.1:8080", Admin: "127.0.0.1:8081", HTTP2: HTTP2Config{MaxStreams: 100}},
		Server:    ServerConfig{16384, 1 << 30, 100000, 0, 10 * time.Second, time.Minute, 75 * time.Second, pathsMatchAll},
		Upstreams: []UpstreamConfig{{URL: "http://127.0.0.1:9000"}},
		Upstream:  ForwardConfig{2 * time.Second, 30 * time.Second, time.Minute, 30 * time.Second, 1024, 3, 5 * time.Second, "", 16384, []string{"websocket"}, 5 * time.Minute, "via", proxy.HealthCheck{Interval: 5 * time.Second, Timeout: time.Second, Healthy: 2, Unhealthy: 3}, nil},
		Store: StoreConfig{
			Kind: "redis", Timeout: 25 * time.Millisecond, DeniedMemory: 100000, MaxKeys: 1000000,
			Redis: RedisConfig{Mode: "cluster", Addrs: []string{"127.0.0.1:7000"}},
		},
		Rules:    RulesConfig{Source: "file", File: "rules.yaml", Cache: "/var/lib/weir/rules.json", Required: true},
		Consul:   ConsulConfig{Register: true},
		Shedder:  ShedderConfig{Source: "config"},
		Recent:   recent.Config{Share: 1},
		Log:      LogConfig{"info"},
		Policy:   PolicyConfig{Source: "file", Subjects: 100_000},
		Shutdown: ShutdownConfig{time.Second, 3 * time.Second},
	}, c)
	require.Less(t, c.Shutdown.Delay+c.Shutdown.Timeout, 5*time.Second)
}

func TestLoadConfig(t *testing.T) {
	_, err := LoadConfig("testdata/nothing.yaml")
	require.EqualError(t, err, "read configuration: open testdata/nothing.yaml: no such file or directory")
	_, err = LoadConfig("testdata/bad-config/store-kind.yaml")
	require.EqualError(t, err, `testdata/bad-config/store-kind.yaml:4: store.kind: must be redis or memory (got "mysql")`)
}

func TestCheckFindsWhatNewWouldRefuse(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		file := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		return file
	}
	good, bad, junk := write("good.yaml", oneRule), write("bad.yaml", "rules: [{}]"), write("junk", "junk")
	f := func(change func(*Config), want string) {
		t.Helper()
		c, err := ParseConfig([]byte(leastConfig))
		require.NoError(t, err)
		c.Rules.File = good
		change(c)
		_, err = Check(c)
		if want == "" {
			require.NoError(t, err)
			return
		}
		require.ErrorContains(t, err, want)
		_, err = New(c, "", discard())
		require.Error(t, err, "New must agree")
	}
	f(func(*Config) {}, "")
	f(func(c *Config) { c.Rules.File = "/does/not/exist" }, "rules.file: open /does/not/exist")
	f(func(c *Config) { c.Rules.File = bad }, bad+": rules[0].limit: ")
	f(func(c *Config) { c.Listen.TLS = &TLSConfig{Pair: certs.Pair{CertFile: junk, KeyFile: junk}} }, "listen.tls: "+junk+", "+junk+": tls: ")
	f(func(c *Config) {
		c.Listen.AdminTLS = &MutualTLSConfig{certs.Pair{CertFile: junk, KeyFile: junk}, ""}
	}, "listen.admin_tls: "+junk)
	f(func(c *Config) { c.Upstreams[0].URL = "ftp://x" }, `upstreams[0].url "ftp://x": want http://, https:// or h2c://`)
	f(func(c *Config) { c.Upstreams[0].URL = "http://x/path" }, "want no path")
	f(func(c *Config) { c.Upstream.CAFile = junk }, "upstream.ca_file: "+junk+" contains no PEM certificate")
	f(func(c *Config) { c.Store.Redis.TLS = &certs.Client{CAFile: junk} }, "store.redis.tls.ca_file: "+junk+" contains no PEM certificate")
	f(func(c *Config) { c.Store.Redis.TLS = &certs.Client{CertFile: junk, KeyFile: junk} }, "store.redis.tls.cert_file: ")
}

func TestCheckWithConsul(t *testing.T) {
	dir := t.TempDir()
	cache, junk := filepath.Join(dir, "rules.json"), filepath.Join(dir, "junk")
	write := func(file string, data []byte) { require.NoError(t, os.WriteFile(file, data, 0o600)) }
	encoded := func(document string) []byte {
		file := filepath.Join(t.TempDir(), "cache")
		writeCache(t, file, document)
		data, err := os.ReadFile(file)
		require.NoError(t, err)
		return data
	}
	write(junk, []byte("junk"))
	f := func(change func(*Config), want string) {
		t.Helper()
		// Nothing answers at these addresses: a check connects to nothing.
		c, err := ParseConfig([]byte("node: {region: eu-west, pop: b}\nupstreams: [{url: \"http://127.0.0.1:9000\"}]\n" +
			"store: {redis: {addrs: [\"192.0.2.1:7000\"]}}\nrules: {source: consul}\nconsul: {addr: \"192.0.2.1:8500\"}\n"))
		require.NoError(t, err)
		c.Rules.Cache = cache
		change(c)
		if _, err = Check(c); want == "" {
			require.NoError(t, err)
		} else {
			require.ErrorContains(t, err, want)
		}
	}
	f(func(*Config) {}, "")
	write(cache, encoded(oneRule))
	f(func(*Config) {}, "")
	write(cache, encoded("rules: [{}]"))
	f(func(*Config) {}, "rules.cache: "+cache+": rules[0].limit: is required")
	write(cache, encoded(oneRule)[1:])
	f(func(*Config) {}, "rules.cache: "+cache+": is damaged: it is not what the node wrote")
	require.NoError(t, os.Remove(cache))
	f(func(c *Config) { c.Consul.TLS = &certs.Client{CAFile: junk} }, "consul: tls.ca_file: "+junk+" contains no PEM certificate")
}

func TestWhatIsRegistered(t *testing.T) {
	taken := func(addr string) net.Addr {
		a, err := net.ResolveTCPAddr("tcp", addr)
		require.NoError(t, err)
		return a
	}
	f := func(listen ListenConfig, advertise, advertiseAdmin, address string, port int, admin, check string) {
		t.Helper()
		c := Defaults()
		listen.HTTP2 = c.Listen.HTTP2
		c.Node, c.Listen = NodeConfig{"n", "r", "p"}, listen
		c.Consul.Advertise, c.Consul.AdvertiseAdmin = advertise, advertiseAdmin
		c.Rules = RulesConfig{Source: "consul", Cache: "x"}
		c.Store.Kind, c.Upstreams = "memory", []UpstreamConfig{{URL: "http://a"}}
		if c.Listen.AdminTokenFile = ""; listen.Admin[0] != '1' {
			c.Listen.AdminTokenFile = "config_test.go"
		}
		require.NoError(t, c.validate())
		r, err := c.registration(taken("127.0.0.1:18080"), taken("127.0.0.1:18081"))
		require.NoError(t, err)
		require.Equal(t, consul.Registration{ID: "n", Address: address, Port: port, Admin: admin, Region: "r", PoP: "p", CheckURL: check}, r)
		require.NoError(t, r.Validate())
	}
	local := ListenConfig{Public: "127.0.0.1:0", Admin: "127.0.0.1:0"}
	all := ListenConfig{Public: ":0", Admin: "[::]:0"}
	f(local, "", "", "127.0.0.1", 18080, "127.0.0.1:18081", "http://127.0.0.1:18081/readyz")
	f(local, "edge-3.example.com", "10.0.0.1", "edge-3.example.com", 18080, "10.0.0.1:18081", "http://127.0.0.1:18081/readyz")
	f(local, "203.0.113.1:443", "10.0.0.1:9000", "203.0.113.1", 443, "10.0.0.1:9000", "http://127.0.0.1:18081/readyz")
	f(all, "2001:db8::1", "2001:db8::2", "2001:db8::1", 18080, "[2001:db8::2]:18081", "http://[2001:db8::2]:18081/readyz")
	f(all, "[2001:db8::1]:443", "edge-3:9000", "2001:db8::1", 443, "edge-3:9000", "http://edge-3:9000/readyz")
}

// manual returns a page of the docs.
func manual(t *testing.T, page string) string {
	t.Helper()
	text, err := os.ReadFile("../../docs/" + page)
	require.NoError(t, err)
	return string(text)
}

func TestConfigDocNamesEveryField(t *testing.T) {
	text := manual(t, "CONFIG.md") + manual(t, "SHEDDING.md")
	for _, path := range fieldPaths(reflect.TypeFor[Config](), "") {
		require.Contains(t, text, "| `"+path+"` |", "docs/CONFIG.md, or docs/SHEDDING.md for the shedder, lacks a row for it")
	}
	rows := regexp.MustCompile("(?m)^\\| `([a-z_]+(?:\\[\\])?\\.[a-z_.]+)` \\|").FindAllStringSubmatch(text, -1)
	known := fieldPaths(reflect.TypeFor[Config](), "")
	for _, row := range rows {
		require.Contains(t, known, row[1], "the row's field is not in the configuration")
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
		if _, err := ParseConfig([]byte(e[1])); err != nil {
			require.Empty(t, missing.ReplaceAllString(err.Error(), ""), e[1])
		}
	}
}

func TestMetricsDocNamesEveryMetric(t *testing.T) {
	text := manual(t, "METRICS.md")
	for name := range fixedMetrics {
		require.Contains(t, text, "| `"+name+"` |")
	}
	for _, row := range regexp.MustCompile("\\| `(weir_[a-z_]+)` \\|").FindAllStringSubmatch(text, -1) {
		if !strings.HasPrefix(row[1], "weir_dns_") && !strings.HasPrefix(row[1], "weir_list_") { // the router's, and regionctl's
			require.Contains(t, fixedMetrics, row[1])
		}
	}
}

func TestTrustedProxies(t *testing.T) {
	f := func(list, fault string) {
		t.Helper()
		_, err := ParseConfig([]byte(leastConfig + "\ntrusted_proxies: [" + list + "]\n"))
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
	f("0.0.0.0/0", ": 0.0.0.0/0 trusts every client to say who it is; write any if nothing but your proxies can reach this node")
	f(`"::/0"`, ": ::/0 trusts every client to say who it is; write any if nothing but your proxies can reach this node")
	f("10.0.0.1/8", ": 10.0.0.1/8 has bits set beyond the network; write 10.0.0.0/8, or the address alone")
	f("proxy", `: must be an address or a network such as 10.0.0.0/8 (got "proxy")`)

	c, err := ParseConfig([]byte(leastConfig + "\ntrusted_proxies: [any]\n"))
	require.NoError(t, err)
	d := decide.Decider{Trusted: c.trusted}
	require.True(t, d.Trusts(netip.MustParseAddr("203.0.113.1")))
	require.True(t, d.Trusts(netip.MustParseAddr("2001:db8::1")))
}

// What a group has of its own stands in place of upstream's, and reaches its pool.
func TestGroupsThatDiffer(t *testing.T) {
	c, err := ParseConfig([]byte("upstreams: [{url: \"http://a\"}, {url: \"http://b\", group: search}, {url: \"http://c\", group: static}]\n" +
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

// With any, every client is a trusted proxy.
func TestWarningsOfAny(t *testing.T) {
	f := func(text string, want ...string) {
		t.Helper()
		c, err := ParseConfig([]byte(leastConfig + text))
		require.NoError(t, err)
		got := c.trustWarnings()
		require.Len(t, got, len(want))
		for i := range want {
			require.Contains(t, got[i], want[i])
			require.Contains(t, c.warnings(), got[i])
		}
	}
	const limited, behind = "server: {max_connections_per_client: 9}\n", "listen: {proxy_protocol: {from: [10.0.0.0/8]}}\n"
	f("trusted_proxies: [any]\n")
	f("trusted_proxies: [10.0.0.0/8]\n" + limited + behind)
	f("trusted_proxies: [10.0.0.0/8, any]\n"+limited, "server.max_connections_per_client: 9 has no effect: trusted_proxies is any, ")
	f("trusted_proxies: [any]\n"+behind, "trusted_proxies: any includes every client that a PROXY header names, ")
	f("trusted_proxies: [any]\n"+limited+behind, "server.max_connections_per_client: ", "trusted_proxies: ")
}

// Two nodes that share a cache would start with each other's rules.
func TestCacheOfAnotherNode(t *testing.T) {
	cache := filepath.Join(t.TempDir(), "rules.json")
	c, err := ParseConfig([]byte("node: {id: a, region: eu, pop: fra}\nlisten: {public: \"127.0.0.1:0\", admin: \"127.0.0.1:0\"}\nupstreams: [{url: \"http://127.0.0.1:9000\"}]\n" +
		"rules: {source: consul, cache: " + cache + "}\nconsul: {addr: \"127.0.0.1:1\"}\nstore: {kind: memory}\n"))
	require.NoError(t, err)
	for _, file := range []string{c.Shedder.Cache, c.Rules.Cache} {
		release, err := follow.Lock(file)
		require.NoError(t, err)
		e, err := New(c, "", discard())
		require.NoError(t, err)
		require.ErrorContains(t, e.Run(t.Context(), nil, nil), file+" is in use by another node; give each node its own file")
		release()
	}
}
