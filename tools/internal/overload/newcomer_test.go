package overload

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A node that joins in an overload meets the others' queue, which it cannot tell from the
// work. It finds out, and then holds its part of the knee and no more.
func TestANewcomerFindsWhatTheOriginTakes(t *testing.T) {
	const s = time.Second
	plan := Plan{{10 * s, Mix(0.5), 0}, {90 * s, Mix(1.5), 0}}
	for _, at := range []time.Duration{37 * s, 41*s + 300*time.Millisecond, 66 * s} {
		for seed := uint64(1); seed <= 3; seed++ {
			run := Simulate(plan, Contender{"auto", Auto()}, seed, Change{Nodes: 2}, Change{At: at, Nodes: 3})
			var base, rate, others, n float64
			for _, sample := range run.Samples {
				if sample.At < at+15*s || sample.At > plan.Length() {
					continue
				}
				require.Len(t, sample.Nodes, 3)
				n++
				base += sample.Nodes[2].Base
				rate += sample.Nodes[2].Rate
				others += (sample.Nodes[0].Rate + sample.Nodes[1].Rate) / 2
			}
			t.Logf("joins at %v, seed %d: base %.1f ms, rate %.0f, others %.0f", at, seed, 1000*base/n, rate/n, others/n)
			require.Less(t, base/n, 2*MeanService.Seconds(), "at %v, seed %d", at, seed)
			require.Less(t, rate/others, 1.75, "at %v, seed %d", at, seed)
		}
	}
}
