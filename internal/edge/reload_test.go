package edge

import (
	"encoding/json"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/adminapi"
	"github.com/weir-edge/weir/internal/edge/config"
	"github.com/weir-edge/weir/internal/testenv"
)

func (n *node) rulesView() adminapi.Rules {
	n.t.Helper()
	a := n.operate("GET", "/v1/rules")
	require.Equal(n.t, 200, a.status)
	var v adminapi.Rules
	require.NoError(n.t, json.Unmarshal([]byte(a.body), &v))
	return v
}

func (n *node) inForce(version string, rules ...string) {
	n.t.Helper()
	eventually(n.t, "other rules than "+version, func() bool { return n.rulesView().Version != version })
	var ids []string
	for _, r := range n.rulesView().Rules {
		ids = append(ids, r.ID)
	}
	require.Equal(n.t, rules, ids)
}

const (
	ruleA = "rules: [{id: a, key: [client_ip], limit: 1, window: 1h}]"
	ruleB = "rules: [{id: b, key: [client_ip], limit: 1, window: 1h}]"
)

func TestRulesReload(t *testing.T) {
	n := start(t, setup{rules: ruleA})
	first := n.rulesView().Version
	require.EqualValues(t, 1, n.metric(`weir_rules_info{version="`+first+`"}`))
	n.get("/")
	require.EqualValues(t, 1, n.metric(`weir_decisions_total{rule="a",outcome="allowed",source="memory"}`))

	n.replaceRules(ruleB) // found by polling
	n.inForce(first, "b")
	_, counted := n.series(`weir_decisions_total{rule="a",outcome="allowed",source="memory"}`)
	require.False(t, counted, "a removed rule's counters are gone")
	_, counted = n.series(`weir_rules_info{version="` + first + `"}`)
	require.False(t, counted)
	require.Equal(t, `"b";q=1;w=3600`, n.get("/").header.Get("RateLimit-Policy"))

	second := n.rulesView().Version
	n.writeRules(ruleA) // in place
	n.inForce(second, "a")

	n.replaceRules(ruleB)
	n.reload <- syscall.SIGHUP
	n.inForce(first, "b")
	require.Len(t, n.logs.lines(t, "reload requested"), 1)
	require.Len(t, n.logs.lines(t, "rules active"), 4)
	require.Zero(t, n.metric("weir_rules_rejected_total"))
}

func TestBadRulesAreRefused(t *testing.T) {
	n := start(t, setup{rules: ruleA})
	first := n.rulesView().Version
	hup := func(count int) {
		n.reload <- syscall.SIGHUP
		eventually(t, "a reload", func() bool { return len(n.logs.lines(t, "reload requested")) == count })
	}
	n.replaceRules(`
rules:
  - {id: a, key: [client_ip], limit: 0, window: 1h}
  - {id: b, key: [client_ip], limit: 5, window: 0s, limt: 3}
`)
	n.reload <- syscall.SIGHUP
	eventually(t, "the refusal", func() bool { return n.rulesView().Refused != nil })
	v := n.rulesView()
	require.Equal(t, first, v.Version, "the previous rules stay active")
	require.Len(t, v.Refused.Errors, 3)
	require.Contains(t, v.Refused.Errors[0], "rules[0].limit: must be between 1")
	require.NotEqual(t, first, v.Refused.Version)
	require.False(t, v.Refused.At.IsZero())
	hup(2)
	hup(3)
	require.EqualValues(t, 1, n.metric("weir_rules_rejected_total"))
	logged := n.logs.lines(t, "reload rules")
	require.Len(t, logged, 1, "logged once, not at every poll")
	require.Contains(t, logged[0]["error"], "rules[1].limt: unknown field; did you mean limit?")
	require.Equal(t, `"a";q=1;w=3600`, n.get("/").header.Get("RateLimit-Policy"))

	// Nor does a missing or empty file delete anything.
	require.NoError(t, os.Remove(n.rulesFile))
	hup(4)
	eventually(t, "the loss is reported", func() bool { return n.metric("weir_rules_rejected_total") == 2 })
	require.Zero(t, n.metric("weir_rules_source_up"))
	require.EqualValues(t, 1, n.metric("weir_rules_stale"))
	n.writeRules("")
	hup(5)
	eventually(t, "the next refusal", func() bool { return n.metric("weir_rules_rejected_total") == 3 })
	require.Equal(t, first, n.rulesView().Version)

	n.replaceRules(ruleB)
	n.reload <- syscall.SIGHUP
	n.inForce(first, "b")
	v = n.rulesView()
	require.Nil(t, v.Refused)
	require.Equal(t, "file", v.Source)
	require.Nil(t, v.Pointer)
	require.Nil(t, v.Consul)
	require.Nil(t, v.Cache)
	require.EqualValues(t, 1, n.metric("weir_rules_source_up"))
	require.Zero(t, n.metric("weir_rules_stale"))
}

func TestRaisedLimitFreesARefusedKeyAtOnce(t *testing.T) {
	redis := testenv.Redis(t, testenv.Options{})
	n := start(t, setup{rules: ruleA, redis: redis})
	require.Equal(t, 200, n.get("/").status)
	require.Equal(t, 429, n.get("/").status)
	require.Equal(t, 429, n.get("/").status)
	require.EqualValues(t, 1, n.metric(`weir_decisions_total{rule="a",outcome="limited",source="redis"}`))
	require.EqualValues(t, 1, n.metric(`weir_decisions_total{rule="a",outcome="limited",source="denied_memory"}`))

	first := n.rulesView().Version
	n.replaceRules("rules: [{id: a, key: [client_ip], limit: 2, window: 1h}]")
	n.reload <- syscall.SIGHUP
	n.inForce(first, "a")
	a := n.get("/")
	require.Equal(t, 200, a.status)
	require.Contains(t, a.header.Get("RateLimit"), `"a";r=0;`, "the count was kept")
	require.Equal(t, 429, n.get("/").status)
}

// The beginning of a document can be a good document: a file is activated only when two
// polls find the same.
func TestRulesBeingWritten(t *testing.T) {
	file := filepath.Join(t.TempDir(), "rules.yaml")
	write := func(text string) { require.NoError(t, os.WriteFile(file, []byte(text), 0o600)) }
	write(ruleA)
	c := config.Dev("127.0.0.1:1")
	c.Rules.File = file
	e, err := New(c, "", discard())
	require.NoError(t, err)
	t.Cleanup(e.close)
	inForce := func() string { return e.rules.Running().Set().Rules()[0].ID }

	write(ruleB)
	require.NoError(t, e.rules.Load(false))
	require.Equal(t, "a", inForce(), "the first poll waits")
	require.NoError(t, e.rules.Load(false))
	require.Equal(t, "b", inForce())
	write(ruleA)
	require.NoError(t, e.rules.Load(true), "asked for")
	require.Equal(t, "a", inForce())
}

func TestBuiltinRulesCanBeRead(t *testing.T) {
	e, err := New(config.Dev("127.0.0.1:1"), config.SampleRules, discard())
	require.NoError(t, err)
	t.Cleanup(e.close)
	n := &node{Edge: e, t: t}
	require.EqualValues(t, 1, n.metric("weir_rules_source_up"))
	require.Zero(t, n.metric("weir_rules_stale"))
}

// Rules that return, as after a rollback, refuse nobody because of earlier refusals.
func TestRulesThatReturnAskTheStore(t *testing.T) {
	const slow = "rules: [{id: a, key: [client_ip], algorithm: token_bucket, limit: 2, window: 1h}]"
	n := start(t, setup{rules: slow, redis: testenv.Redis(t, testenv.Options{})})
	apply := func(text string) {
		t.Helper()
		n.writeRules(text)
		require.NoError(t, n.rules.Load(true))
	}
	n.get("/")
	n.get("/")
	require.Equal(t, 429, n.get("/").status)
	require.Equal(t, "denied_memory", n.explained("a", "127.0.0.1", "").Source)
	apply("rules: [{id: a, key: [client_ip], algorithm: token_bucket, limit: 1000, window: 1s, count_denied: true}]")
	require.Equal(t, 200, n.get("/").status)
	eventually(t, "the bucket is refilled", func() bool { return n.remaining("a", "127.0.0.1") == 1000 })
	require.Equal(t, 200, n.get("/").status, "which is stored: what a bucket gains counts at the rate of the rule that charges it")
	apply(slow)
	require.Equal(t, 200, n.get("/").status, "the bucket has been refilled")
}
