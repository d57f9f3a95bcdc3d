package edge

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The node's clock moves an hour forward and back: each is a step; the hours that pass
// are not.
func TestNodeClockThatIsSet(t *testing.T) {
	ahead := time.Duration(0)
	var steps []time.Duration
	c := nodeClock{now: func() time.Time { return time.Now().Add(ahead) }, born: time.Now()}
	for _, by := range []time.Duration{0, time.Hour, time.Hour, 0, 0} {
		ahead = by
		c.look(func(by time.Duration) { steps = append(steps, by.Round(time.Minute)) })
	}
	require.Equal(t, []time.Duration{time.Hour, -time.Hour}, steps)

	n := start(t, setup{rules: ruleA})
	clockSet(n.log, n.metrics, "node", "", -time.Hour)
	require.EqualValues(t, 1, n.metric(`weir_clock_steps_total{clock="node",direction="back"}`))
	require.Contains(t, n.logs.String(), `"by":"-1h0m0s"`)
}
