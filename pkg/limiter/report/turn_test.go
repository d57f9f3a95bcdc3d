package report

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/pkg/limiter"
)

// When a client moves from node to node, each node is ignorant of what the others admitted: it
// was never asked about the client, or long ago. The printed bound, what all nodes together are
// asked for in the delay, holds anyway.
func TestOvershootOfAClientThatGoesFromNodeToNode(t *testing.T) {
	const rate = 1000 // per second
	for _, line := range limits {
		for _, heard := range []bool{false, true} {
			inWorld(t, 20, 1, func(t *testing.T, w *world) {
				l := limit(t, fmt.Sprintf(line, 1000))
				sleep(time.Until(time.Now().Truncate(l.Window).Add(l.Window+100*time.Millisecond)) - w.offset%l.Window)
				one := func(n *node, requests int) {
					for range requests {
						n.request(check(l, 1))
						sleep(time.Second / rate)
					}
				}
				if heard {
					for _, n := range w.nodes {
						one(n, 2)
					}
				}
				for _, n := range w.nodes { // until this node has learned
					one(n, 300)
				}
				over := w.exceeds(l)
				bound := l.Overshoot(rate*l.Window.Seconds()/float64(l.Limit), limiter.ReportDelay(longestTrip), 20) * float64(l.Limit)
				t.Logf("%s, heard before: %v: over by %.0f of %d, printed bound %.0f", l.Algorithm, heard, over, l.Limit, bound)
				require.LessOrEqual(t, over, bound)
			})
		}
	}
}
