package fleet

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestRuleCounts(t *testing.T) {
	at := time.Now()
	read := func(after time.Duration, lines string) *RuleCounts {
		c := &RuleCounts{at: at.Add(after), index: map[string]int{"a": 0, "b": 1, "c": 2}, counts: make([]Decided, 3)}
		require.NoError(t, c.read(familiesOf(t, "weir_requests_total{code_class=\"2xx\"} 1\n"+lines)))
		return c
	}
	before := read(0, `weir_decisions_total{rule="a",outcome="allowed",source="redis"} 100
weir_decisions_total{rule="a",outcome="allowed",source="lease"} 20
weir_decisions_total{rule="a",outcome="limited",source="denied_memory"} 7
weir_decisions_total{rule="b",outcome="shadow_limited",source="redis"} 3
weir_decisions_total{rule="b",outcome="error",source="fallback"} 2
`)
	require.Equal(t, []Decided{{Allowed: 120, Limited: 7}, {Shadow: 3, Failed: 2}, {}}, before.Totals())
	grown, _ := before.Since(nil)
	require.Nil(t, grown)
	since := func(after, before *RuleCounts) []Decided {
		grown, took := after.Since(before)
		require.Equal(t, 2.0, took)
		return grown
	}
	after := read(2*time.Second, `weir_decisions_total{rule="a",outcome="allowed",source="redis"} 140
weir_decisions_total{rule="a",outcome="limited",source="redis"} 9
weir_decisions_total{rule="b",outcome="shadow_limited",source="redis"} 3
weir_decisions_total{rule="b",outcome="error",source="fallback"} 2
weir_decisions_total{rule="c",outcome="allowed",source="redis"} 4
`)
	require.Equal(t, []Decided{{Allowed: 20, Limited: 2}, {}, {Allowed: 4}}, since(after, before))
	moved := read(2*time.Second, `weir_decisions_total{rule="a",outcome="allowed",source="redis"} 140
weir_decisions_total{rule="gone",outcome="allowed",source="redis"} 5
`)
	moved.index = map[string]int{"c": 0, "a": 1}
	moved.counts = []Decided{{}, moved.counts[0]}
	require.Equal(t, []Decided{{}, {Allowed: 20, Limited: 0}}, since(moved, &RuleCounts{at: at, index: map[string]int{"a": 0}, counts: []Decided{{Allowed: 120}}}), "other rules have other places")
	restarted := read(2*time.Second, `weir_decisions_total{rule="a",outcome="allowed",source="redis"} 130
weir_decisions_total{rule="a",outcome="limited",source="redis"} 1
`)
	require.Equal(t, []Decided{{Allowed: 130, Limited: 1}, {}, {}}, since(restarted, before), "all that a process counts that has restarted is new")
	require.ErrorContains(t, (&RuleCounts{}).read(familiesOf(t, "up 1\n")), "is this an edge?")
}
