package report

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/pkg/limiter"
)

var limits = []string{
	"r fixed_window limit=%d window=10s",
	"r sliding_window limit=%d window=10s",
	"r token_bucket limit=%d window=10s burst=%[1]d",
}

// The excess over a limit is at most what nodes are asked for in the delay, whatever the
// demand. No report is lost here.
func TestOvershootIsBounded(t *testing.T) {
	for _, line := range limits {
		for _, nodes := range []int{1, 3, 20} {
			for seed := range uint64(3) {
				inWorld(t, nodes, seed, func(t *testing.T, w *world) {
					l := limit(t, fmt.Sprintf(line, 1+w.random.Int64N(3000)))
					w.random.Float64()
					w.demand(l, 0)
					over, bound := w.exceeds(l), w.bound(limiter.ReportDelay(longestTrip))
					t.Logf("%s, %d nodes: %d passed, over by %.0f of %d, bound %d", l.Algorithm, nodes, w.passed(), over, l.Limit, bound)
					require.LessOrEqual(t, over, float64(bound))
					if nodes == 1 { // it has every count
						require.LessOrEqual(t, over, 1e-3)
					}
				})
			}
		}
	}
}

// A lost report delays a node's knowledge by one report, and its contents may pass in addition.
// Isolated nodes refuse after the second failure.
func TestOvershootWithLosses(t *testing.T) {
	for _, line := range limits {
		for _, nodes := range []int{1, 3, 20} {
			for seed := range uint64(3) {
				inWorld(t, nodes, seed, func(t *testing.T, w *world) {
					l := limit(t, fmt.Sprintf(line, 1+w.random.Int64N(3000)))
					l.OnFailure = limiter.Closed
					w.demand(l, 0.2)
					over, bound := w.exceeds(l), w.bound(2*limiter.ReportDelay(longestTrip))
					t.Logf("%s, %d nodes: over by %.0f of %d, bound %d", l.Algorithm, nodes, over, l.Limit, bound)
					require.LessOrEqual(t, over, float64(bound))
				})
			}
		}
	}
}

// demand asks nodes at random rates, steadily and in bursts, for three windows.
func (w *world) demand(l *limiter.Limit, loss float64) {
	length := 3 * l.Window
	rate := float64(l.Limit) / l.Window.Seconds() * []float64{0.5, 1, 2, 5}[w.random.IntN(4)]
	var group sync.WaitGroup
	for i, n := range w.nodes {
		share := rate / float64(len(w.nodes)) * 2 * w.random.Float64()
		if i == 0 && w.random.IntN(2) == 0 {
			share = rate // one is hot
		}
		burst := w.random.IntN(3) == 0
		n.loss = loss * w.random.Float64()
		group.Go(func() {
			checks := func() []limiter.Check {
				cost := int64(1)
				if w.random.Float64() < 0.1 {
					cost += w.random.Int64N(4)
				}
				return []limiter.Check{check(l, cost)}
			}
			for end := time.Now().Add(length); time.Now().Before(end); {
				part := min(time.Duration(w.random.Float64()*float64(l.Window)), time.Until(end))
				if burst && w.random.Float64() < 0.5 {
					sleep(part)
				} else {
					n.drive(share, part, checks)
				}
			}
		})
		if loss == 0 {
			continue
		}
		group.Go(func() {
			for end := time.Now().Add(length); time.Now().Before(end); {
				sleep(time.Duration(w.random.Float64() * float64(l.Window)))
				n.mu.Lock()
				n.cut = time.Now().Add(time.Duration(w.random.Float64() * float64(3*time.Second)))
				n.mu.Unlock()
			}
		})
	}
	group.Wait()
}

// When demand exceeds the limit and is spread over 20 nodes, the whole limit is used and little
// more: the figures in RULES.md.
func TestUse(t *testing.T) {
	for _, line := range []string{
		"r fixed_window limit=3000 window=60s",
		"r sliding_window limit=3000 window=60s",
		"r token_bucket limit=3000 window=60s burst=3000",
	} {
		for _, times := range []float64{2, 10} {
			inWorld(t, 20, 1, func(t *testing.T, w *world) {
				l := limit(t, line)
				rate := float64(l.Limit) / l.Window.Seconds() * times / 20
				sleep(time.Until(time.Now().Truncate(time.Minute).Add(time.Minute+time.Second)) - w.offset%time.Minute)
				length := 2 * l.Window
				var group sync.WaitGroup
				for _, n := range w.nodes {
					group.Go(func() { n.drive(rate, length, func() []limiter.Check { return []limiter.Check{check(l, 1)} }) })
				}
				measured, stated := 0.0, 0.0
				for range length / (20 * time.Second) {
					sleep(20 * time.Second)
					for _, n := range w.nodes {
						u := n.store.Usages()[0]
						measured, stated = max(measured, u.Overshoot), max(stated, u.Bound)
						require.LessOrEqual(t, u.Overshoot, u.Bound)
					}
				}
				group.Wait()
				over := w.exceeds(l) / float64(l.Limit)
				bound := l.Overshoot(times, limiter.ReportDelay(longestTrip), 20)
				calls := int64(0)
				for _, n := range w.nodes {
					calls += n.calls.Load()
				}
				t.Logf("%s, %.1f times the limit: over by %.2f%%, bound %.2f%%; measured %.2f%%, its bound %.2f%%; %.3f commands a request, %d passed",
					l.Algorithm, times, 100*over, 100*bound, 100*measured, 100*stated, float64(calls)/float64(w.requests()), w.passed())
				require.LessOrEqual(t, over, bound)
				require.LessOrEqual(t, over, 0.02)
				require.GreaterOrEqual(t, float64(w.passed()), 0.99*2*float64(l.Limit))
				require.InDelta(t, over, measured, 0.005)
			})
		}
	}
}

func (w *world) requests() (sum int) {
	for _, n := range w.nodes {
		sum += len(n.asked)
	}
	return sum
}
