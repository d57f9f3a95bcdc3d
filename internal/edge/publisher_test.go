package edge

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"
	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/adminapi"
	"github.com/weir-edge/weir/internal/edge/config"
	"github.com/weir-edge/weir/internal/edge/documents"
	"github.com/weir-edge/weir/internal/testenv"
	"github.com/weir-edge/weir/pkg/certs"
	"github.com/weir-edge/weir/pkg/region/consul"
)

// publisher writes rules to Consul as an operator's program does, and also what one
// would never write.
type publisher struct {
	*consul.Documents
	t      *testing.T
	consul *testenv.Consul
	prefix string // of this test's keys
}

// publish shares a Consul between tests by giving each its own prefix.
func publish(t *testing.T, c *testenv.Consul) *publisher {
	t.Helper()
	p := &publisher{t: t, consul: c, prefix: strings.ToLower(strings.ReplaceAll(t.Name(), "/", "."))}
	config := p.config()
	if c.Token() != "" {
		config.TokenFile = p.file(c.Token())
	}
	client, err := consul.Open(config)
	require.NoError(t, err)
	t.Cleanup(client.Close)
	p.Documents = client.Documents("rules")
	return p
}

func (p *publisher) file(content string) string {
	p.t.Helper()
	file := filepath.Join(p.t.TempDir(), "file")
	require.NoError(p.t, os.WriteFile(file, []byte(content), 0o600))
	return file
}

func (p *publisher) config() consul.Config {
	c := consul.Config{Addr: p.consul.Addr(), Prefix: p.prefix}
	if ca := p.consul.CAFile(); ca != "" {
		c.TLS = &certs.Client{CAFile: ca}
	}
	return c
}

// setup is for a node that follows Consul. It is in PoP ams1 and does not register.
func (p *publisher) setup(change ...func(*config.Config)) setup {
	cache := filepath.Join(p.t.TempDir(), "weir", "rules.json")
	return setup{config: func(c *config.Config) {
		c.Node.Region, c.Node.PoP = "eu-west", "ams1"
		c.Rules = config.Rules{Source: "consul", Cache: cache, Required: true}
		c.Consul = config.Consul{Config: p.config()}
		for _, f := range change {
			f(c)
		}
	}}
}

func (p *publisher) put(document string) consul.Pointer {
	p.t.Helper()
	_, err := p.Put(p.t.Context(), []byte(document))
	require.NoError(p.t, err)
	return consul.NewPointer([]byte(document), "test", time.Now())
}

func (p *publisher) point(to consul.Pointer) {
	p.t.Helper()
	value, err := json.Marshal(to)
	require.NoError(p.t, err)
	p.write(p.CurrentKey(), string(value))
}

// apply activates a document and returns its version.
func (p *publisher) apply(document string) string {
	p.t.Helper()
	to := p.put(document)
	p.point(to)
	return to.Version
}

// canary makes one PoP follow a document temporarily.
func (p *publisher) canary(pop, document string, lasts time.Duration) string {
	p.t.Helper()
	to := p.put(document)
	ends := time.Now().Add(lasts)
	to.ExpiresAt = &ends
	p.setCanary(pop, to)
	return to.Version
}

// setCanary replaces any existing canary.
func (p *publisher) setCanary(pop string, to consul.Pointer) {
	p.t.Helper()
	value, err := json.Marshal(to)
	require.NoError(p.t, err)
	p.write(p.CanaryKey(pop), string(value))
}

// endCanary makes a PoP follow the others again.
func (p *publisher) endCanary(pop string) {
	p.t.Helper()
	_, err := p.consul.Client().KV().Delete(p.CanaryKey(pop), nil)
	require.NoError(p.t, err)
}

func (p *publisher) versionKey(version string) string { return p.prefix + "/rules/versions/" + version }

func (p *publisher) write(key, value string) {
	p.t.Helper()
	_, err := p.consul.Client().KV().Put(&api.KVPair{Key: key, Value: []byte(value)}, nil)
	require.NoError(p.t, err)
}

func (p *publisher) remove(key string) {
	p.t.Helper()
	_, err := p.consul.Client().KV().Delete(key, nil)
	require.NoError(p.t, err)
}

// shows waits until /v1/rules satisfies the condition.
func (n *node) shows(what string, ok func(adminapi.Rules) bool) adminapi.Rules {
	n.t.Helper()
	var v adminapi.Rules
	eventually(n.t, what, func() bool { v = n.rulesView(); return ok(v) })
	return v
}

// kept returns what the node has on disk.
func (n *node) kept() (*documents.Cached, error) {
	return documents.ReadCache(n.config.Rules.Cache, n.config.CacheOwner())
}

// runs waits until a version is active and is known to be the current one.
func (n *node) runs(version string) adminapi.Rules {
	n.t.Helper()
	return n.shows("it runs "+version, func(v adminapi.Rules) bool { return v.Version == version && !v.Stale })
}

// refuses waits for a refusal, and checks that nothing else changed.
func (n *node) refuses(version, text string) adminapi.Rules {
	n.t.Helper()
	before := n.rulesView()
	v := n.shows("it refuses "+version+" with "+text, func(v adminapi.Rules) bool {
		return v.Refused != nil && v.Refused.Version == version && strings.Contains(v.Refused.Errors[0], text)
	})
	require.Equal(n.t, before.Version, v.Version, "the previous rules stay active")
	require.Equal(n.t, before.Since, v.Since)
	return v
}

func (n *node) readyz() (int, map[string]string) {
	n.t.Helper()
	a := n.operate("GET", "/readyz")
	var state map[string]string
	require.NoError(n.t, json.Unmarshal([]byte(a.body), &state))
	return a.status, state
}
