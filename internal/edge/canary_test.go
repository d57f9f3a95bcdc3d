package edge

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/edge/config"

	"github.com/weir-edge/weir/internal/adminapi"
)

func followsCanaryOfItsPoP(t *testing.T, p *publisher) {
	first := p.apply(ruleA)
	ams := start(t, p.setup())
	fra := start(t, p.setup(func(c *config.Config) { c.Node.PoP = "fra1" }))
	ams.runs(first)
	fra.runs(first)

	candidate := p.canary("ams1", ruleB, time.Hour)
	v := ams.runs(candidate)
	require.True(t, v.Canary)
	require.Equal(t, candidate, v.Pointer.Version)
	require.NotNil(t, v.Pointer.ExpiresAt)

	second := p.apply(ruleC)
	fra.runs(second)
	eventually(t, "the node of the canary keeps the new current rules on disk", func() bool {
		kept, err := ams.kept()
		return err == nil && kept.Pointer.Version == second
	})
	require.Equal(t, candidate, ams.rulesView().Version)
	require.False(t, fra.rulesView().Canary)
	require.EqualValues(t, v.Pointer.ExpiresAt.Unix(), ams.metric("weir_rules_apart_until_seconds"))
	require.Zero(t, fra.metric("weir_rules_apart_until_seconds"))

	p.endCanary("ams1")
	v = ams.runs(second)
	require.False(t, v.Canary)

	ams.stop()
	p.canary("ams1", ruleB, time.Hour)
	again := start(t, p.setup())
	require.True(t, again.runs(candidate).Canary, "a node that starts into a canary follows it")
}

func canaryExpires(t *testing.T, p *publisher) {
	first := p.apply(ruleA)
	n := start(t, p.setup())
	n.runs(first)
	set := n.rules.Running().Set()
	candidate := p.canary("ams1", ruleB, time.Hour)
	n.shows("the canary", func(v adminapi.Rules) bool { return v.Version == candidate && v.Canary })
	p.canary("ams1", ruleB, time.Second) // once it is seen: a slow machine could miss it
	v := n.runs(first)
	require.False(t, v.Canary)
	require.Same(t, set, n.rules.Running().Set(), "what the canary replaced is not compiled again")
	require.Equal(t, first, v.Pointer.Version)
	require.Len(t, n.logs.lines(t, "rules active"), 3)

	// One already over when it is seen is not even loaded.
	late := p.put(badRules)
	over := time.Now().Add(-time.Second)
	late.ExpiresAt = &over
	p.setCanary("ams1", late)
	second := p.apply(ruleC)
	n.runs(second)
	require.Zero(t, n.metric("weir_rules_rejected_total"))

	// Longer than the timer looks ahead, then shortened.
	p.canary("ams1", ruleB, time.Hour)
	n.runs(candidate)
	p.canary("ams1", ruleB, 300*time.Millisecond)
	n.runs(second)
}

func canaryIsWrong(t *testing.T, p *publisher) {
	first := p.apply(ruleA)
	n := start(t, p.setup())
	n.runs(first)
	bad := p.canary("ams1", badRules, time.Hour)
	v := n.refuses(bad, "rules[0].limit: must be between 1 and")
	require.True(t, v.Refused.Canary)
	require.False(t, v.Canary)
	require.True(t, v.Stale, "it does not run the current document")
	require.EqualValues(t, 1, n.metric("weir_rules_stale"))
	second := p.apply(ruleB)
	v = n.shows("current rules alongside a bad canary", func(v adminapi.Rules) bool { return v.Version == second })
	require.Equal(t, bad, v.Refused.Version)

	p.write(p.CanaryKey("ams1"), "{")
	v = n.refuses("", p.CanaryKey("ams1")+": is not a JSON object with version and sha256")
	require.False(t, v.Stale)
	good := p.put(ruleC)
	value, err := json.Marshal(good)
	require.NoError(t, err)
	p.write(p.CanaryKey("ams1"), string(value))
	n.refuses("", "expires_at: must be set: a canary that is forgotten must end")
	p.canary("ams1", ruleC, time.Hour)
	require.Nil(t, n.runs(good.Version).Refused)
	p.canary("ams1", badRules, time.Hour)
	v = n.shows("a bad canary ends the good one", func(v adminapi.Rules) bool { return v.Version == second && v.Refused != nil })
	p.canary("ams1", badRules, time.Second)
	v = n.shows("the refusal ends when the canary expires", func(v adminapi.Rules) bool { return v.Refused == nil })
	require.False(t, v.Stale)
	require.EqualValues(t, 4, n.metric("weir_rules_rejected_total"))
}

func canaryIsPromoted(t *testing.T, p *publisher) {
	first := p.apply(ruleA)
	n := start(t, p.setup())
	n.runs(first)
	candidate := p.canary("ams1", ruleB, time.Hour)
	before := n.runs(candidate)
	running := n.rules.Running()
	p.apply(ruleB)
	eventually(t, "it is kept on disk", func() bool {
		kept, err := n.kept()
		return err == nil && kept.Pointer.Version == candidate
	})
	p.endCanary("ams1")
	after := n.shows("the canary is over", func(v adminapi.Rules) bool { return !v.Canary })
	require.Equal(t, candidate, after.Version)
	require.Equal(t, before.Since, after.Since)
	require.Nil(t, after.Pointer.ExpiresAt)
	require.Same(t, running, n.rules.Running(), "nothing is swapped")
}
