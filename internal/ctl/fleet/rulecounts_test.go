package fleet

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestRuleCounts(t *testing.T) {
	at := time.Now()
	read := func(after time.Duration, lines string) *RuleCounts {
		c := &RuleCounts{at: at.Add(after), Rules: map[string]Decided{}}
		require.NoError(t, c.read(strings.NewReader("weir_requests_total{code_class=\"2xx\"} 1\n"+lines)))
		return c
	}
	before := read(0, `weir_decisions_total{rule="a",outcome="allowed",source="redis"} 100
weir_decisions_total{rule="a",outcome="allowed",source="lease"} 20
weir_decisions_total{rule="a",outcome="limited",source="denied_memory"} 7
weir_decisions_total{rule="b",outcome="shadow_limited",source="redis"} 3
weir_decisions_total{rule="b",outcome="error",source="fallback"} 2
`)
	require.Equal(t, map[string]Decided{"a": {Allowed: 120, Limited: 7}, "b": {Shadow: 3, Failed: 2}}, before.Rules)
	require.Nil(t, before.Rates(nil))
	after := read(2*time.Second, `weir_decisions_total{rule="a",outcome="allowed",source="redis"} 140
weir_decisions_total{rule="a",outcome="limited",source="redis"} 9
weir_decisions_total{rule="b",outcome="shadow_limited",source="redis"} 3
weir_decisions_total{rule="b",outcome="error",source="fallback"} 2
weir_decisions_total{rule="c",outcome="allowed",source="redis"} 4
`)
	require.Equal(t, map[string]Decided{"a": {Allowed: 10, Limited: 1}, "b": {}, "c": {Allowed: 2}}, after.Rates(before))
	restarted := read(2*time.Second, `weir_decisions_total{rule="a",outcome="allowed",source="redis"} 130
weir_decisions_total{rule="a",outcome="limited",source="redis"} 1
`)
	require.Equal(t, map[string]Decided{"a": {Allowed: 65, Limited: .5}}, restarted.Rates(before), "all that a process counts that has restarted is new")
	require.ErrorContains(t, (&RuleCounts{}).read(strings.NewReader("<html>")), "is this an edge?")
}
