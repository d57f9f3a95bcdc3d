package edge

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/adminapi"
	"github.com/weir-edge/weir/pkg/region/consul"
)

func refusesDocument(t *testing.T, p *publisher) {
	first := p.apply(ruleA)
	n := start(t, p.setup())
	n.runs(first)
	bad := p.apply(badRules)
	v := n.refuses(bad, "rules[0].limit: must be between 1 and")
	require.Len(t, v.Refused.Errors, 3)
	require.False(t, v.Refused.Canary)
	require.True(t, v.Stale)
	require.Equal(t, bad, v.Pointer.Version)
	status, state := n.readyz()
	require.Equal(t, 200, status)
	require.Contains(t, state["rules_refused"], bad+": rules[0].limit: must be between 1 and")
	require.EqualValues(t, 1, n.metric("weir_rules_rejected_total"))
	require.EqualValues(t, 1, n.metric("weir_rules_stale"))
	logged := n.logs.lines(t, "rules refused")
	require.Len(t, logged, 1)
	require.Contains(t, logged[0]["error"], "rules[1].limt: unknown field; did you mean limit?")
	require.Equal(t, `"a";q=1;w=3600`, n.get("/").header.Get("RateLimit-Policy"))

	second := p.apply(ruleB)
	v = n.runs(second)
	require.Nil(t, v.Refused)
	_, state = n.readyz()
	require.NotContains(t, state, "rules_refused")
	require.EqualValues(t, 1, n.metric("weir_rules_rejected_total"))
	eventually(t, "it is kept on disk", func() bool {
		kept, err := n.kept()
		require.True(t, err != nil || kept.Pointer.Version != bad)
		return err == nil && kept.Pointer.Version == second
	})
}

func pointerIsLost(t *testing.T, p *publisher) {
	first := p.apply(ruleA)
	n := start(t, p.setup())
	n.runs(first)
	p.remove(p.CurrentKey())
	v := n.refuses("", p.CurrentKey()+" is missing; apply the document again")
	require.True(t, v.Stale)
	require.Nil(t, v.Pointer)
	require.True(t, v.Consul.OK)
	status, _ := n.readyz()
	require.Equal(t, 200, status)

	for i, c := range []struct{ value, want string }{
		{"", "is empty; a pointer is a JSON object with version and sha256"},
		{"[]", "is not a JSON object with version and sha256"},
		{`{"version": "ca84d0706ec2"}`, "sha256: must be 64 hex digits"},
		{`{"version": 7}`, "version: must be a string"},
	} {
		p.write(p.CurrentKey(), c.value)
		v := n.refuses("", c.want)
		require.True(t, v.Stale)
		require.EqualValues(t, 2+i, n.metric("weir_rules_rejected_total"))
	}
	require.Equal(t, `"a";q=1;w=3600`, n.get("/").header.Get("RateLimit-Policy"))
	p.apply(ruleA)
	require.Nil(t, n.runs(first).Refused)
	require.Len(t, n.logs.lines(t, "rules active"), 1)
	n.runs(p.apply(ruleB))
}

func versionIsMissing(t *testing.T, p *publisher) {
	first := p.apply(ruleA)
	n := start(t, p.setup())
	n.runs(first)
	next := consul.NewPointer([]byte(ruleB), "test", time.Now())
	p.point(next)
	v := n.refuses(next.Version, "the version is missing; apply the document again")
	require.True(t, v.Consul.OK, "that is not Consul's fault")
	p.put(ruleB) // the pointer is unchanged
	require.Nil(t, n.runs(next.Version).Refused)
	require.EqualValues(t, 1, n.metric("weir_rules_rejected_total"), "once, however often it was looked for")
	require.Len(t, n.logs.lines(t, "rules refused"), 1)

	// While it looks for one, it keeps watching the pointer.
	p.point(consul.NewPointer([]byte("nothing"), "test", time.Now()))
	n.shows("a refusal", func(v adminapi.Rules) bool { return v.Refused != nil })
	require.Nil(t, n.runs(p.apply(ruleC)).Refused)
}

func versionIsCorrupt(t *testing.T, p *publisher) {
	first := p.apply(ruleA)
	n := start(t, p.setup())
	n.runs(first)
	next := consul.NewPointer([]byte(ruleB), "test", time.Now())
	p.write(p.versionKey(next.Version), ruleC) // good rules, but not the intended ones
	p.point(next)
	n.refuses(next.Version, "the stored document is corrupt: the pointer names sha256 "+next.SHA256)
	p.write(p.versionKey(next.Version), ruleB)
	require.Nil(t, n.runs(next.Version).Refused)
	require.EqualValues(t, 1, n.metric("weir_rules_rejected_total"))

	third := consul.NewPointer([]byte(ruleC), "test", time.Now())
	p.write(p.versionKey(third.Version), "\x1f\x8b not gzip")
	p.point(third)
	n.refuses(third.Version, "decompress")
	p.write(p.versionKey(third.Version), ruleC)
	n.runs(third.Version)
}
