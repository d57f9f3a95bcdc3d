package edge

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/edge/config"
	"github.com/weir-edge/weir/internal/edge/documents"
	"github.com/weir-edge/weir/pkg/certs"
)

const leastConfig = "upstreams: [{url: \"http://127.0.0.1:9000\"}]\nrules: {file: rules.yaml}\nstore: {redis: {addrs: [\"127.0.0.1:7000\"]}}\n"

func TestCheckFindsWhatNewWouldRefuse(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		file := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		return file
	}
	good, bad, junk := write("good.yaml", oneRule), write("bad.yaml", "rules: [{}]"), write("junk", "junk")
	f := func(change func(*config.Config), want string) {
		t.Helper()
		c, err := config.Parse([]byte(leastConfig))
		require.NoError(t, err)
		c.Rules.File = good
		change(c)
		_, err = config.Check(c)
		if want == "" {
			require.NoError(t, err)
			return
		}
		require.ErrorContains(t, err, want)
		_, err = New(c, "", discard())
		require.Error(t, err, "New must agree")
	}
	f(func(*config.Config) {}, "")
	f(func(c *config.Config) { c.Rules.File = "/does/not/exist" }, "rules.file: open /does/not/exist")
	f(func(c *config.Config) { c.Rules.File = bad }, bad+":1: rules[0].limit: ")
	f(func(c *config.Config) { c.Listen.TLS = &config.TLS{Pair: certs.Pair{CertFile: junk, KeyFile: junk}} }, "listen.tls: "+junk+", "+junk+": tls: ")
	f(func(c *config.Config) {
		c.Listen.AdminTLS = &config.MutualTLS{Pair: certs.Pair{CertFile: junk, KeyFile: junk}, ClientCAFile: ""}
	}, "listen.admin_tls: "+junk)
	f(func(c *config.Config) { c.Upstreams[0].URL = "ftp://x" }, `upstreams[0].url "ftp://x": want http://, https:// or h2c://`)
	f(func(c *config.Config) { c.Upstreams[0].URL = "http://x/path" }, "want no path")
	f(func(c *config.Config) { c.Upstream.CAFile = junk }, "upstream.ca_file: "+junk+" contains no PEM certificate")
	f(func(c *config.Config) { c.Store.Redis.TLS = &certs.Client{CAFile: junk} }, "store.redis.tls.ca_file: "+junk+" contains no PEM certificate")
	f(func(c *config.Config) { c.Store.Redis.TLS = &certs.Client{CertFile: junk, KeyFile: junk} }, "store.redis.tls.cert_file: ")
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
	f := func(change func(*config.Config), want string) {
		t.Helper()
		// Nothing answers at these addresses: a check connects to nothing.
		c, err := config.Parse([]byte("node: {region: eu-west, pop: b}\nupstreams: [{url: \"http://127.0.0.1:9000\"}]\n" +
			"store: {redis: {addrs: [\"192.0.2.1:7000\"]}}\nrules: {source: consul}\nconsul: {addr: \"192.0.2.1:8500\"}\n"))
		require.NoError(t, err)
		c.Rules.Cache = cache
		change(c)
		if _, err = config.Check(c); want == "" {
			require.NoError(t, err)
		} else {
			require.ErrorContains(t, err, want)
		}
	}
	f(func(*config.Config) {}, "")
	write(cache, encoded(oneRule))
	f(func(*config.Config) {}, "")
	write(cache, encoded("rules: [{}]"))
	f(func(*config.Config) {}, "rules.cache: "+cache+": rules[0].limit: is required")
	write(cache, encoded(oneRule)[1:])
	f(func(*config.Config) {}, "rules.cache: "+cache+": is damaged: it is not what the node wrote")
	require.NoError(t, os.Remove(cache))
	f(func(c *config.Config) { c.Consul.TLS = &certs.Client{CAFile: junk} }, "consul: tls.ca_file: "+junk+" contains no PEM certificate")
}

// Two nodes that share a cache would start with each other's rules.
func TestCacheOfAnotherNode(t *testing.T) {
	cache := filepath.Join(t.TempDir(), "rules.json")
	c, err := config.Parse([]byte("node: {id: a, region: eu, pop: fra}\nlisten: {public: \"127.0.0.1:0\", admin: \"127.0.0.1:0\"}\nupstreams: [{url: \"http://127.0.0.1:9000\"}]\n" +
		"rules: {source: consul, cache: " + cache + "}\nconsul: {addr: \"127.0.0.1:1\"}\nstore: {kind: memory}\n"))
	require.NoError(t, err)
	for _, file := range []string{c.Shedder.Cache, c.Rules.Cache} {
		release, err := documents.Lock(file)
		require.NoError(t, err)
		e, err := New(c, "", discard())
		require.NoError(t, err)
		require.ErrorContains(t, e.Run(t.Context(), nil, nil), file+" is in use by another node; give each node its own file")
		release()
	}
}
