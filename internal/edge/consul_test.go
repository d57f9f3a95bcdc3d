package edge

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/edge/config"

	"github.com/weir-edge/weir/internal/adminapi"
	"github.com/weir-edge/weir/internal/testenv"
	"github.com/weir-edge/weir/pkg/region/consul"
)

const ruleC = "rules: [{id: c, key: [client_ip], limit: 1, window: 1h}]"

const badRules = "rules:\n  - {id: a, key: [client_ip], limit: 0, window: 1h}\n  - {id: b, key: [client_ip], limit: 5, window: 0s, limt: 3}\n"

func TestFollowingConsul(t *testing.T) {
	consul := testenv.StartConsul(t, testenv.ConsulOptions{})
	for name, f := range map[string]func(*testing.T, *publisher){
		"changes": followsChanges, "apart": apartOnPurpose, "the same again": sameVersionAgain,
		"canary": followsCanaryOfItsPoP, "canary expires": canaryExpires, "canary is wrong": canaryIsWrong, "canary is promoted": canaryIsPromoted,
		"refused document": refusesDocument, "pointer is lost": pointerIsLost, "missing version": versionIsMissing, "corrupt version": versionIsCorrupt,
		"no rules": hasNoRules, "none required": needsNoRules, "large document": followsLargeDocument, "counts": countsStay, "under load": changesUnderLoad,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f(t, publish(t, consul))
		})
	}
}

func followsChanges(t *testing.T, p *publisher) {
	first := p.apply(ruleA)
	n := start(t, p.setup())
	v := n.runs(first)
	require.Equal(t, "consul", v.Source)
	require.Equal(t, "a", v.Rules[0].ID)
	require.Equal(t, first, v.Pointer.Version)
	require.Equal(t, "test", v.Pointer.AppliedBy)
	require.False(t, v.Canary)
	require.Nil(t, v.Refused)
	require.True(t, v.Consul.OK)
	require.True(t, v.Cache.OK)
	require.WithinDuration(t, time.Now(), v.Since, patience)
	status, state := n.readyz()
	require.Equal(t, 200, status)
	require.Equal(t, map[string]string{"status": "ready", "rules_version": first, "consul": "ok"}, state)
	require.Equal(t, 200, n.get("/").status)
	require.Equal(t, 429, n.get("/").status)

	second := p.apply(ruleB)
	n.runs(second)
	require.Equal(t, `"b";q=1;w=3600`, n.get("/").header.Get("RateLimit-Policy"))
	require.EqualValues(t, 1, n.metric(`weir_rules_info{version="`+second+`"}`))
	require.EqualValues(t, 1, n.metric("weir_rules_source_up"))
	require.Zero(t, n.metric("weir_rules_stale"))
	require.Zero(t, n.metric("weir_rules_apart_until_seconds"))
	require.Less(t, n.metric("weir_rules_age_seconds"), patience.Seconds())
	require.Zero(t, n.metric("weir_rules_rejected_total"))
	_, counted := n.series(`weir_decisions_total{rule="a",outcome="allowed",source="memory"}`)
	require.False(t, counted, "a removed rule's counters are gone")
	require.Empty(t, n.logs.lines(t, "rules cannot be read from consul; the node keeps what it has"))
}

// A region that was changed alone says that it differs on purpose, until a change of all.
func apartOnPurpose(t *testing.T, p *publisher) {
	until := time.Now().Add(time.Hour).Truncate(time.Second)
	to := p.put(ruleA)
	to.ApartUntil = &until
	p.point(to)
	n := start(t, p.setup())
	n.runs(to.Version)
	require.EqualValues(t, until.Unix(), n.metric("weir_rules_apart_until_seconds"))

	p.point(p.put(badRules))
	eventually(t, "rules that are not those of the pointer differ for no purpose", func() bool {
		return n.metric("weir_rules_stale") == 1 && n.metric("weir_rules_apart_until_seconds") == 0
	})
	n.runs(p.apply(ruleB))
	require.Zero(t, n.metric("weir_rules_apart_until_seconds"))
}

// A document that already runs is not swapped, whatever else the pointer says.
func sameVersionAgain(t *testing.T, p *publisher) {
	version := p.apply(ruleA)
	n := start(t, p.setup())
	before := n.runs(version)
	running := n.rules.Running()
	n.get("/")
	p.apply(ruleA)
	after := n.shows("the new pointer", func(v adminapi.Rules) bool { return v.Pointer.AppliedAt != before.Pointer.AppliedAt })
	require.Equal(t, before.Since, after.Since)
	require.False(t, after.Stale)
	require.Same(t, running, n.rules.Running())
	require.EqualValues(t, 1, n.metric(`weir_decisions_total{rule="a",outcome="allowed",source="memory"}`))
	require.Len(t, n.logs.lines(t, "rules active"), 1)
}

func hasNoRules(t *testing.T, p *publisher) {
	n := start(t, p.setup())
	eventually(t, "Consul answers", func() bool { return n.rulesView().Consul.OK })
	status, state := n.readyz()
	require.Equal(t, 503, status)
	require.Equal(t, map[string]string{
		"status": "no rules", "rules_version": "none", "consul": "ok", "rules": "nothing is published; apply rules with regionctl",
	}, state)
	v := n.rulesView()
	require.Equal(t, "none", v.Version)
	require.Equal(t, "none", v.Source)
	require.True(t, v.Stale)
	require.True(t, v.Since.IsZero())
	require.Empty(t, v.Rules)
	require.Nil(t, v.Refused, "nothing was published that could be refused")
	require.Zero(t, n.metric("weir_rules_rejected_total"))

	waits := map[string]bool{}
	for range 50 {
		a := n.get("/")
		require.Equal(t, 503, a.status)
		require.Equal(t, "application/problem+json", a.header.Get("Content-Type"))
		require.JSONEq(t, `{"type":"https://iana.org/assignments/http-problem-types#temporary-reduced-capacity","title":"No rules yet","status":503}`, a.body)
		waits[a.header.Get("Retry-After")] = true
	}
	require.Greater(t, len(waits), 1, "jittered")
	for w := range waits {
		seconds, err := strconv.Atoi(w)
		require.NoError(t, err)
		require.True(t, seconds >= 1 && seconds <= 5, w)
	}
	require.Zero(t, n.asked.Load(), "nothing passes")
	for _, c := range [][2]string{{"GET", "/v1/explain?client=127.0.0.1"}, {"DELETE", "/v1/limits?rule=a&client=127.0.0.1"}} {
		a := n.operate(c[0], c[1])
		require.Equal(t, 503, a.status)
		require.Contains(t, a.body, "there are no rules yet; /readyz says why")
	}
	require.Equal(t, 200, n.operate("GET", "/metrics").status)

	bad := p.apply(badRules)
	n.refuses(bad, "rules[0].limit")
	status, state = n.readyz()
	require.Equal(t, 503, status)
	require.Contains(t, state["rules_refused"], bad)

	n.runs(p.apply(ruleA))
	status, _ = n.readyz()
	require.Equal(t, 200, status)
	require.Equal(t, 200, n.get("/").status)
	require.Equal(t, 429, n.get("/").status)
}

func needsNoRules(t *testing.T, p *publisher) {
	n := start(t, p.setup(func(c *config.Config) { c.Rules.Required = false }))
	eventually(t, "Consul answers", func() bool { return n.rulesView().Consul.OK })
	for range 20 {
		require.Equal(t, 200, n.get("/").status)
	}
	status, state := n.readyz()
	require.Equal(t, 200, status)
	require.Equal(t, "none", state["rules_version"])
	require.Equal(t, "nothing is published; apply rules with regionctl", state["rules"])
	require.EqualValues(t, 1, n.metric(`weir_rules_info{version="none"}`))
	a := n.operate("GET", "/v1/explain?client=127.0.0.1")
	require.JSONEq(t, `{"client": "127.0.0.1", "rules_version": "none", "verdict": "pass", "upstream": "default", "class": "read", "rules": []}`, a.body)
	v := n.rulesView()
	require.Nil(t, v.Refused)
	require.True(t, v.Stale)

	n.runs(p.apply(ruleA))
	require.Equal(t, 200, n.get("/").status)
	require.Equal(t, 429, n.get("/").status)
	_, is := n.series(`weir_rules_info{version="none"}`)
	require.False(t, is)
	p.remove(p.CurrentKey())
	n.refuses("", "is missing")
	require.Equal(t, 429, n.get("/").status, "the active rules are not dropped")
}

func followsLargeDocument(t *testing.T, p *publisher) {
	var b strings.Builder
	b.WriteString("rules:\n")
	for i := range 8000 {
		fmt.Fprintf(&b, "  - {id: rule-%d, match: {paths: [\"/%d/*\"]}, key: [client_ip], algorithm: token_bucket, limit: 10, window: 1s, burst: 5}\n", i, i)
	}
	require.Greater(t, b.Len(), 512<<10)
	n := start(t, p.setup())
	version := p.apply(b.String())
	v := n.runs(version)
	require.Len(t, v.Rules, 8000)
	eventually(t, "it is kept on disk", func() bool { _, err := n.kept(); return err == nil })
	kept, err := n.kept()
	require.NoError(t, err)
	require.Equal(t, b.String(), string(kept.Document))
}

// A counter survives every change except one of its algorithm.
func countsStay(t *testing.T, p *publisher) {
	limit := func(n int) string {
		return fmt.Sprintf("rules: [{id: a, key: [client_ip], limit: %d, window: 1h}]", n)
	}
	s := p.setup()
	s.redis = testenv.Redis(t, testenv.Options{})
	first := p.apply(limit(3))
	n := start(t, s)
	n.runs(first)
	for range 3 {
		require.Equal(t, 200, n.get("/").status)
	}
	require.Equal(t, 429, n.get("/").status)
	require.Equal(t, 429, n.get("/").status)
	require.EqualValues(t, 1, n.metric(`weir_decisions_total{rule="a",outcome="limited",source="denied_memory"}`))

	n.runs(p.apply(limit(5)))
	require.EqualValues(t, 2, n.remaining("a", "127.0.0.1"))
	require.Contains(t, n.get("/").header.Get("RateLimit"), `"a";r=1;`, "the remembered refusal is dropped, the count is kept")
	n.runs(p.apply(limit(3)))
	require.Equal(t, 429, n.get("/").status)

	// Refusals from before a canary are not believed after it: an operator may have
	// reset the count meanwhile, on another node.
	n.runs(p.canary("ams1", limit(10), time.Hour))
	require.EqualValues(t, 6, n.remaining("a", "127.0.0.1"))
	require.NoError(t, s.redis.Client().FlushAll(t.Context()).Err())
	p.endCanary("ams1")
	n.runs(first)
	require.Equal(t, 200, n.get("/").status)
}

// Each request is decided by one whole document, however fast documents change.
func changesUnderLoad(t *testing.T, p *publisher) {
	document := func(limit int) string {
		return fmt.Sprintf(`rules:
  - {id: one, key: [client_ip], limit: %d, window: 1h}
  - {id: two, key: [client_ip], algorithm: fixed_window, limit: %[1]d, window: 1h}
`, limit)
	}
	n := start(t, p.setup())
	n.runs(p.apply(document(10_000)))
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var asking sync.WaitGroup
	for range 4 {
		asking.Go(func() {
			for ctx.Err() == nil {
				policy := n.get("/").header.Get("RateLimit-Policy")
				var one, two int
				if got, err := fmt.Sscanf(policy, `"one";q=%d;w=3600, "two";q=%d;w=3600`, &one, &two); got != 2 || one != two {
					t.Errorf("decided by %s: %v", policy, err)
					return
				}
			}
		})
	}
	for i := range 6 {
		p.apply(document(9000 + i))
		n.runs(p.canary("ams1", document(9000-i), time.Hour))
		p.apply(document(9100 + i))
		p.endCanary("ams1")
		n.runs(consul.NewPointer([]byte(document(9100+i)), "", time.Time{}).Version)
	}
	stop()
	asking.Wait()
	require.Zero(t, n.metric("weir_rules_rejected_total"))
	require.Zero(t, n.metric("weir_panics_total"))
}
