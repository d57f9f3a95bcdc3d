package edge

import (
	"encoding/json"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/pkg/limiter/rules"
	"github.com/weir-edge/weir/pkg/region"
)

func followsCanaryOfItsPoP(t *testing.T, p *publisher) {
	first := p.apply(ruleA)
	ams := start(t, p.setup())
	fra := start(t, p.setup(func(c *Config) { c.Node.PoP = "fra1" }))
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
		return err == nil && kept.pointer.Version == second
	})
	require.Equal(t, candidate, ams.rulesView().Version)
	require.False(t, fra.rulesView().Canary)

	require.NoError(t, p.EndCanary(t.Context(), "ams1"))
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
	candidate := p.canary("ams1", ruleB, 1500*time.Millisecond)
	n.shows("the canary", func(v rulesView) bool { return v.Version == candidate && v.Canary })
	v := n.runs(first)
	require.False(t, v.Canary)
	require.Equal(t, first, v.Pointer.Version)
	require.Len(t, n.logs.lines(t, "rules in force"), 3)

	// One that is over when it is seen is not even loaded.
	late := p.put(badRules)
	over := time.Now().Add(-time.Second)
	late.ExpiresAt = &over
	p.setCanary("ams1", late)
	second := p.apply(ruleC)
	n.runs(second)
	require.Zero(t, n.metric("weir_rules_rejected_total"))

	// Longer than the timer looks ahead, then cut short.
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
	require.True(t, v.Stale, "it does not run what it is told to")
	require.EqualValues(t, 1, n.metric("weir_rules_stale"))
	second := p.apply(ruleB)
	v = n.shows("current rules beside a bad canary", func(v rulesView) bool { return v.Version == second })
	require.Equal(t, bad, v.Refused.Version)

	p.write(p.CanaryKey("ams1"), "{")
	v = n.refuses("", p.CanaryKey("ams1")+": is no JSON object with version and sha256")
	require.False(t, v.Stale)
	good := p.put(ruleC)
	value, err := json.Marshal(good)
	require.NoError(t, err)
	p.write(p.CanaryKey("ams1"), string(value))
	n.refuses("", "expires_at: must be set: a canary that is forgotten must end")
	p.canary("ams1", ruleC, time.Hour)
	require.Nil(t, n.runs(good.Version).Refused)
	p.canary("ams1", badRules, 500*time.Millisecond)
	v = n.shows("a bad canary ends the good one", func(v rulesView) bool { return v.Version == second })
	v = n.shows("it is forgotten with its time", func(v rulesView) bool { return v.Refused == nil })
	require.False(t, v.Stale)
	require.EqualValues(t, 4, n.metric("weir_rules_rejected_total"))
}

func canaryIsPromoted(t *testing.T, p *publisher) {
	first := p.apply(ruleA)
	n := start(t, p.setup())
	n.runs(first)
	candidate := p.canary("ams1", ruleB, time.Hour)
	before := n.runs(candidate)
	running := n.running.Load()
	p.apply(ruleB)
	eventually(t, "it is kept on disk", func() bool {
		kept, err := n.kept()
		return err == nil && kept.pointer.Version == candidate
	})
	require.NoError(t, p.EndCanary(t.Context(), "ams1"))
	after := n.shows("the canary is over", func(v rulesView) bool { return !v.Canary })
	require.Equal(t, candidate, after.Version)
	require.Equal(t, before.Since, after.Since)
	require.Nil(t, after.Pointer.ExpiresAt)
	require.Same(t, running, n.running.Load(), "nothing is swapped")
}

// The clock of a node that is behind, or set back, does not prolong a canary.
func TestCanaryIsBoundByTheNodesOwnClock(t *testing.T) {
	n := start(t, unreachable(t, filepath.Join(t.TempDir(), "rules.json")))
	f := &follower{edge: n.Edge}
	applied := time.Date(2026, 3, 1, 10, 0, 0, 0, time.UTC)
	pointer := func(document string, applied time.Time, lasts time.Duration) *region.Pointer {
		p, expires := region.NewPointer([]byte(document), "test", applied), applied.Add(lasts)
		p.ExpiresAt = &expires
		return &p
	}
	sees := func(p *region.Pointer, now time.Time) {
		f.take(event[rules.Set]{canary: true, finding: &finding[rules.Set]{pointer: p}}, now)
	}
	behind := applied.Add(-time.Hour)
	require.False(t, f.canary.lives(behind))
	sees(pointer("a", applied, 5*time.Minute), behind)
	require.True(t, f.canary.lives(behind))
	require.Equal(t, time.Minute, f.nextLook(behind))
	require.True(t, f.canary.lives(behind.Add(5*time.Minute-1)))
	require.Equal(t, time.Second, f.nextLook(behind.Add(5*time.Minute-time.Second)))
	require.False(t, f.canary.lives(behind.Add(5*time.Minute)))

	// Seen again, also after it was gone, it is the same.
	sees(pointer("a", applied, 5*time.Minute), behind.Add(4*time.Minute))
	sees(nil, behind.Add(4*time.Minute))
	sees(pointer("a", applied, 5*time.Minute), behind.Add(4*time.Minute))
	require.False(t, f.canary.lives(behind.Add(5*time.Minute)))
	// Another one has its own time.
	sees(pointer("a", applied.Add(time.Second), 5*time.Minute), behind.Add(6*time.Minute))
	require.True(t, f.canary.lives(behind.Add(11*time.Minute-1)))
	require.False(t, f.canary.lives(behind.Add(11*time.Minute)))
	sees(pointer("a", applied, -time.Minute), behind)
	require.False(t, f.canary.lives(behind), "over before it began")

	// The wall clock counts as well: a node that is ahead ends it early.
	ahead := applied.Add(4 * time.Minute)
	sees(pointer("b", applied, 5*time.Minute), ahead)
	require.True(t, f.canary.lives(ahead.Add(time.Minute-1)))
	require.False(t, f.canary.lives(ahead.Add(time.Minute)))
}
