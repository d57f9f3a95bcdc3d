package edge

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/adminapi"
	"github.com/weir-edge/weir/internal/clientlist"
	"github.com/weir-edge/weir/internal/edge/config"
	"github.com/weir-edge/weir/internal/edge/documents"
	"github.com/weir-edge/weir/internal/testenv"
	"github.com/weir-edge/weir/pkg/limiter/rules"
	"github.com/weir-edge/weir/pkg/region/consul"
)

func TestConsulIsKilledAndBack(t *testing.T) {
	t.Parallel()
	consul := testenv.StartConsul(t, testenv.ConsulOptions{})
	p := publish(t, consul)
	first := p.apply(ruleA)
	n := start(t, p.setup())
	running := n.runs(first)
	candidate := p.canary("ams1", ruleC, time.Hour)
	v := n.runs(candidate)
	p.canary("ams1", ruleC, 5*time.Second) // an earlier end: a slow machine may see only that
	n.shows("it ends earlier", func(now adminapi.Rules) bool {
		return now.Version == first || now.Pointer.ExpiresAt.Before(*v.Pointer.ExpiresAt)
	})
	consul.Kill()
	running = n.shows("a canary ends without Consul", func(v adminapi.Rules) bool { return v.Version == first && !v.Canary })
	v = n.shows("Consul is unreachable", func(v adminapi.Rules) bool { return !v.Consul.OK })
	require.Contains(t, v.Consul.Error, "consul "+consul.Addr()+": read "+p.prefix+"/rules/")
	require.Equal(t, first, v.Version)
	require.False(t, v.Stale, "as far as the node knows")
	require.EqualValues(t, 0, n.metric("weir_rules_source_up"))
	status, state := n.readyz()
	require.Equal(t, 200, status)
	require.Contains(t, state["consul"], consul.Addr())
	require.Equal(t, 200, n.get("/").status)
	require.Equal(t, 429, n.get("/").status)
	n.reload <- syscall.SIGHUP
	eventually(t, "the signal is answered", func() bool {
		return len(n.logs.lines(t, "nothing to reload: rules are followed in consul, and its token is read at each request")) == 1
	})

	consul.Start()
	back := time.Now()
	second := p.apply(ruleB)
	v = n.runs(second)
	promised(t, time.Since(back), 10*time.Second)
	eventually(t, "both pointers are answered", func() bool { return n.rulesView().Consul.OK })
	require.EqualValues(t, 1, n.metric("weir_rules_source_up"))
	require.Len(t, n.logs.lines(t, "rules cannot be read from consul; the node keeps what it has"), 1, "logged once, not at every attempt")
	require.Len(t, n.logs.lines(t, "rules can be read from consul again"), 1)
	require.True(t, v.Since.After(running.Since))
	require.Zero(t, n.metric("weir_rules_rejected_total"))
}

// A node starts without Consul from its cache and takes up newer rules when Consul is
// back.
func TestStartWithoutConsul(t *testing.T) {
	t.Parallel()
	consul := testenv.StartConsul(t, testenv.ConsulOptions{})
	p := publish(t, consul)
	s := p.setup()
	first := p.apply(ruleA)
	n := start(t, s)
	n.runs(first)
	// A canary must not outlive its pointer: a node never starts from one.
	n.runs(p.canary("ams1", ruleB, time.Hour))
	eventually(t, "the current rules are kept", func() bool { _, err := n.kept(); return err == nil })
	n.stop()
	consul.Kill()

	n = start(t, s)
	v := n.rulesView()
	require.Equal(t, first, v.Version)
	require.Equal(t, "cache", v.Source)
	require.False(t, v.Canary)
	require.True(t, v.Stale, "nothing confirms that they are the newest")
	require.Nil(t, v.Pointer)
	require.False(t, v.Consul.OK)
	require.NotEmpty(t, v.Consul.Error)
	status, _ := n.readyz()
	require.Equal(t, 200, status)
	require.Equal(t, 200, n.get("/").status)
	require.Equal(t, 429, n.get("/").status)

	fresh := start(t, p.setup())
	status, state := fresh.readyz()
	require.Equal(t, 503, status)
	require.Equal(t, "no rules", state["status"])
	require.Equal(t, 503, fresh.get("/").status)
	require.Len(t, fresh.logs.lines(t, "no rules yet, requests get 503 until consul names some"), 1)

	running := n.rules.Running()
	require.NoError(t, os.Remove(n.config.Rules.Cache))
	consul.Start()
	p.endCanary("ams1")
	v = n.runs(first)
	require.Equal(t, "consul", v.Source)
	eventually(t, "the cached rules are confirmed", func() bool { return n.rulesView().Consul.OK && !n.rulesView().Canary })
	eventually(t, "and rewritten after somebody deleted them", func() bool { _, err := n.kept(); return err == nil })
	fresh.runs(first)
	second := p.apply(ruleB)
	n.runs(second)
	require.NotSame(t, running, n.rules.Running())
}

// Cached rules that Consul still names are neither loaded nor swapped.
func TestCachedRulesAreConfirmed(t *testing.T) {
	t.Parallel()
	p := publish(t, testenv.StartConsul(t, testenv.ConsulOptions{}))
	s := p.setup()
	first := p.apply(ruleA)
	n := start(t, s)
	n.runs(first)
	eventually(t, "the rules are kept", func() bool { _, err := n.kept(); return err == nil })
	n.stop()
	p.remove(p.versionKey(first)) // it is never read
	n = start(t, s)
	running := n.rules.Running()
	v := n.runs(first)
	require.Equal(t, "consul", v.Source)
	require.Same(t, running, n.rules.Running())
	n.stop()

	// Nor are they dropped when the pointer is gone.
	p.remove(p.CurrentKey())
	n = start(t, s)
	v = n.refuses("", "is missing; apply the document again")
	require.Equal(t, "cache", v.Source)
	require.Equal(t, first, v.Version)
	status, _ := n.readyz()
	require.Equal(t, 200, status)
}

// Over TLS, with a token whose file is replaced while the node runs.
func TestConsulToken(t *testing.T) {
	t.Parallel()
	consul := testenv.StartConsul(t, testenv.ConsulOptions{ACL: true, TLS: true})
	p := publish(t, consul)
	version := p.apply(ruleA)
	_, useless := consul.NewToken(t, `key_prefix "other/" { policy = "read" }`)
	_, reader := consul.NewToken(t, `key_prefix "`+p.prefix+`/rules/" { policy = "read" }`)
	tokenFile := filepath.Join(t.TempDir(), "token")
	replace := func(token string) {
		t.Helper()
		require.NoError(t, os.WriteFile(tokenFile+".next", []byte(token+"\n"), 0o600))
		require.NoError(t, os.Rename(tokenFile+".next", tokenFile))
	}
	replace(useless)
	n := start(t, p.setup(func(c *config.Config) {
		c.Consul.TokenFile = tokenFile
		c.Consul.Register = true
	}))
	v := n.shows("the token is denied", func(v adminapi.Rules) bool { return !v.Consul.OK && v.Consul.Error != documents.ErrNoAnswer.Error() })
	require.Contains(t, v.Consul.Error, "answered 403")
	require.Contains(t, v.Consul.Error, "put a token whose policies allow this into "+tokenFile)
	status, state := n.readyz()
	require.Equal(t, 503, status)
	require.Equal(t, "no rules", state["status"])
	require.Contains(t, state["consul"], "answered 403")
	require.NotContains(t, state, "rules", "a denied token does not mean that nothing is published")
	require.Nil(t, v.Refused)

	_, blind := consul.NewToken(t, `key "`+p.prefix+`/rules/current" { policy = "read" }
		key_prefix "`+p.prefix+`/rules/canary/" { policy = "read" }`)
	replace(blind)
	v = n.shows("the version cannot be read", func(v adminapi.Rules) bool {
		return v.Pointer != nil && strings.Contains(v.Consul.Error, "read "+p.versionKey(version)+": answered 403")
	})
	require.Nil(t, v.Refused, "the document is not to blame")
	require.True(t, v.Stale)

	replace(reader)
	n.runs(version)
	eventually(t, "all is answered", func() bool { return n.rulesView().Consul.OK })
	eventually(t, "the token does not allow to register", func() bool {
		_, state := n.readyz()
		return strings.Contains(state["registration"], "register the node: answered 403")
	})
	require.Len(t, n.logs.lines(t, "the node is not registered in consul"), 1)

	_, editor := consul.NewToken(t, `key_prefix "`+p.prefix+`/rules/" { policy = "read" }
		service "weir-edge" { policy = "write" }`)
	replace(editor)
	eventually(t, "it is registered", func() bool { _, state := n.readyz(); return state["registration"] == "ok" })
	n.runs(p.apply(ruleB))
	for _, secret := range []string{useless, reader, editor} {
		require.NotContains(t, n.logs.String(), secret)
	}
}

func TestStopWithoutConsul(t *testing.T) {
	t.Parallel()
	consul := testenv.StartConsul(t, testenv.ConsulOptions{})
	p := publish(t, consul)
	n := start(t, p.setup(func(c *config.Config) { c.Consul.Register = true }))
	n.runs(p.apply(ruleA))
	eventually(t, "it is registered", func() bool { _, state := n.readyz(); return state["registration"] == "ok" })
	consul.Suspend() // it accepts connections and never answers
	promised(t, n.stop(), 4*time.Second)
}

// What a node registers, and when the registration ends.
func TestRegistration(t *testing.T) {
	t.Parallel()
	server := testenv.StartConsul(t, testenv.ConsulOptions{})
	p := publish(t, server)
	client, err := consul.Open(p.config())
	require.NoError(t, err)
	t.Cleanup(client.Close)
	nodes := func() []consul.Node {
		list, err := client.Nodes(t.Context())
		require.NoError(t, err)
		return list
	}
	registered := func(c *config.Config) {
		c.Consul.Register = true
		c.Shutdown = config.Shutdown{Delay: 2 * time.Second, Timeout: 3 * time.Second}
	}
	s := p.setup(registered)
	delayed, closes := s.lingering()
	defer closes()
	n := start(t, s)
	eventually(t, "a node without rules is registered and not passing", func() bool {
		list := nodes()
		return len(list) == 1 && !list[0].Passing && list[0].RulesVersion == "none"
	})
	first := p.apply(ruleA)
	eventually(t, "it passes", func() bool { list := nodes(); return list[0].Passing && list[0].RulesVersion == first })
	require.Equal(t, []consul.Node{{
		ID: "test-node", Region: "eu-west", PoP: "ams1", Address: n.public, Admin: n.admin, Prefix: p.prefix, Schema: rules.Schema, ClientsSchema: clientlist.Schema, RulesVersion: first, ShedderVersion: n.shedding.State().Version(), Passing: true,
	}}, withoutOutput(nodes()))
	v := n.shows("it says what it registers", func(v adminapi.Rules) bool { return v.Registered[consul.MetaRulesVersion] == first })
	var own consul.Node
	own.Accepts(v.Registered)
	require.Equal(t, consul.Node{Schema: rules.Schema, ClientsSchema: clientlist.Schema}, own)
	second := p.apply(ruleB)
	eventually(t, "the version follows", func() bool { return nodes()[0].RulesVersion == second })
	bad := p.apply(badRules)
	eventually(t, "the refusal follows", func() bool { return nodes()[0].RulesRefused != "" })
	require.Contains(t, nodes()[0].RulesRefused, bad+": rules[0].limit: must be between 1 and")
	require.Equal(t, second, nodes()[0].RulesVersion)
	n.runs(p.apply(ruleC))
	eventually(t, "and is forgotten", func() bool { return nodes()[0].RulesRefused == "" })

	began := time.Now()
	n.cancel()
	eventually(t, "it is deregistered", func() bool { return len(nodes()) == 0 })
	require.Equal(t, 2*time.Second, <-delayed)
	require.True(t, n.listens(), "before it stops serving")
	status, _ := n.readyz()
	require.Equal(t, 503, status)
	closes()
	require.NoError(t, <-n.ended)
	close(n.ended)
	promised(t, time.Since(began), 5*time.Second)
}

func withoutOutput(nodes []consul.Node) []consul.Node {
	for i := range nodes {
		nodes[i].Output = ""
	}
	return nodes
}

// Nodes of one region share its store, and share its limits while the store is
// unreachable.
func TestNodesAreCounted(t *testing.T) {
	t.Parallel()
	server := testenv.StartConsul(t, testenv.ConsulOptions{})
	p := publish(t, server)
	p.apply("rules: [{id: a, key: [client_ip], limit: 6, window: 1h}]")
	redis := testenv.Redis(t, testenv.Options{})
	begin := func(id, region string, more ...func(*config.Config)) *node {
		s := p.setup(append(more, func(c *config.Config) { c.Node.ID, c.Node.Region, c.Consul.Register = id, region, true })...)
		s.redis = redis
		return start(t, s)
	}
	one := begin("one", "eu-west")
	require.EqualValues(t, 1, one.metric("weir_store_nodes"))
	two := begin("two", "eu-west")
	begin("three", "us-east")
	fixed := begin("four", "eu-west", func(c *config.Config) { c.Store.Nodes = new(7) })
	for _, n := range []*node{one, two} {
		eventually(t, "three of four are of its region", func() bool { return n.metric("weir_store_nodes") == 3 })
	}
	require.EqualValues(t, 7, fixed.metric("weir_store_nodes"))
	redis.Kill()
	eventually(t, "a third of the limit is left", func() bool { return one.get("/").status == 429 })
	require.EqualValues(t, 2, one.metric(`weir_decisions_total{rule="a",outcome="allowed",source="fallback"}`))
	two.stop()
	eventually(t, "one has left", func() bool { return one.metric("weir_store_nodes") == 2 })
	server.Kill()
	one.shows("Consul is unreachable", func(v adminapi.Rules) bool { return !v.Consul.OK })
	require.EqualValues(t, 2, one.metric("weir_store_nodes"), "without Consul the last number holds")
	for _, nothing := range [][]consul.Node{nil, {{ID: "one", Region: "eu-west"}}, {{ID: "three", Region: "us-east", Passing: true}}} {
		one.countNodes(nothing)
		require.EqualValues(t, 2, one.nodes.Load(), "this node is alive")
	}
}

// Consul's check reads readyz over TLS, without a certificate.
func TestRegisteredWithTLS(t *testing.T) {
	files := testenv.Certificates(t)
	p := publish(t, testenv.StartConsul(t, testenv.ConsulOptions{}))
	p.apply(ruleA)
	n := start(t, p.setup(func(c *config.Config) {
		c.Consul.Register = true
		c.Listen.AdminTLS = &config.MutualTLS{Pair: pairOf(files), ClientCAFile: files.CAFile}
	}))
	client, err := consul.Open(p.config())
	require.NoError(t, err)
	defer client.Close()
	eventually(t, "its check passes", func() bool {
		list, err := client.Nodes(t.Context())
		require.NoError(t, err)
		return len(list) == 1 && list[0].Passing && list[0].Admin == "https://"+n.admin
	})
}
