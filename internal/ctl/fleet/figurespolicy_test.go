package fleet

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Requests that a policy refuses count as limited, except in shadow mode.
func TestFiguresCountWhatAPolicyRefuses(t *testing.T) {
	f := &Figures{requests: map[string]float64{}}
	require.NoError(t, f.read(familiesOf(t, `# TYPE weir_requests_total counter
weir_requests_total{code_class="2xx"} 10
# TYPE weir_requests_limited_total counter
weir_requests_limited_total 3
# TYPE weir_behavior_requests_total counter
weir_behavior_requests_total{tier="blocked",effect="refused",mode="enforce"} 4
weir_behavior_requests_total{tier="suspicious",effect="crowded",mode="enforce"} 2
weir_behavior_requests_total{tier="suspicious",effect="delayed",mode="enforce"} 50
weir_behavior_requests_total{tier="blocked",effect="refused",mode="shadow"} 60
# TYPE weir_behavior_policy_info gauge
weir_behavior_policy_info{version="0123456789ab",mode="enforce"} 1
`)))
	require.Equal(t, 9.0, f.limited)
	require.Equal(t, "0123456789ab", f.Version(&Kind{Name: "policy"}))
}
