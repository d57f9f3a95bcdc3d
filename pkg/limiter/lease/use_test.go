package lease

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/pkg/limiter"
	"github.com/weir-edge/weir/pkg/limiter/storetest"
)

// With more demand than the limit on 20 nodes, almost all of the limit is used, and the
// store is asked for a small part of what is requested, although the limit is used up.
func TestUse(t *testing.T) {
	const window, windows, nodes = time.Minute, 2, 20
	for _, c := range []struct {
		name   string
		limit  int
		unused float64 // of the limit
		calls  float64 // a request
	}{
		{"fixed_window", 60_000, 0.01, 0.1},
		{"sliding_window", 60_000, 0.01, 0.25},
		{"ring", 10_000, 0.02, 0.6}, // 5 requests in a lease time
		{"sorted_set", 60_000, 0.02, 0.25},
		{"token_bucket", 60_000, 0.02, 0.25},
	} {
		if race && c.name != "ring" {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			inWorld(t, nodes, 1, func(t *testing.T, w *world) {
				line := fmt.Sprintf(lines[c.name], c.limit, window)
				if c.name == "token_bucket" {
					line = fmt.Sprintf(lines[c.name], c.limit, window, c.limit/10)
				}
				l := limit(t, line)
				start := w.clock()
				sleep(time.Duration(window.Microseconds()-start%window.Microseconds()) * time.Microsecond)
				start = w.clock()
				w.saturate(l, windows*window)
				log := w.passed[string(storetest.Key("a", l))]
				require.Empty(t, storetest.Replay(l, sample(l, log)))
				// The first window of a rolling log and of a bucket begins empty and full; later ones
				// show what passes in a steady state.
				used := 0
				for _, p := range log {
					if from := p.At - start; from >= window.Microseconds() && from < windows*window.Microseconds() {
						used++
					}
				}
				share := float64(used) / float64((windows-1)*c.limit)
				var calls int64
				for _, n := range w.nodes {
					calls += n.calls.Load()
				}
				t.Logf("%s: used %.3f%% of the limit, %.4f calls a request, %.4f a request that passed", c.name, 100*share,
					float64(calls)/float64(w.asked), float64(calls)/float64(len(log)))
				require.Greater(t, share, 1-c.unused)
				require.Less(t, float64(calls)/float64(w.asked), c.calls)
			})
		})
	}
}

// A request that is refused early is so by no more than what other nodes hold, what becomes
// free in a lease time, and what its node last received. A log frees units as they were
// granted, a window ago: up to what was requested in one and a half lease times at once.
func TestRefusedEarly(t *testing.T) {
	for name := range lines {
		for _, nodes := range []int{1, 3, 20} {
			if race && nodes == 20 {
				continue
			}
			t.Run(fmt.Sprintf("%s/%d", name, nodes), func(t *testing.T) {
				inWorld(t, nodes, 1, func(t *testing.T, w *world) {
					line := fmt.Sprintf(lines[name], 6000, time.Minute)
					if name == "token_bucket" {
						line = fmt.Sprintf(lines[name], 6000, time.Minute, 600)
					}
					l := limit(t, line)
					perLease := int64(float64(l.Limit) * l.LeaseTime().Seconds() / l.Window.Seconds())
					var most, over int64 // over what a node last received
					w.refused = func(n *node, free int64) {
						most, over = max(most, free), max(over, free-n.received.Load()-1)
					}
					w.saturate(l, 2*time.Minute)
					freed := perLease
					if l.Algorithm == limiter.RollingWindow {
						freed = w.busiest(l.LeaseTime() * 3 / 2)
					}
					require.LessOrEqual(t, over, freed)
					t.Logf("%s on %d nodes: at most %d were free when a request was refused; %d become free in a lease time on average", name, nodes, most, perLease)
				})
			})
		}
	}
}

// sample is the log, or none where the model would take too long.
func sample(l *limiter.Limit, log []storetest.Passed) []storetest.Passed {
	if l.Algorithm == limiter.RollingWindow {
		return nil
	}
	return log
}

// saturate sends twice the limit, evenly spread over the nodes.
func (w *world) saturate(l *limiter.Limit, length time.Duration) {
	var group sync.WaitGroup
	rate := 2 * float64(l.Limit) / l.Window.Seconds() / float64(len(w.nodes))
	for _, n := range w.nodes {
		group.Go(func() {
			n.drive(rate, length, func() []limiter.Check {
				w.mu.Lock()
				w.arrived = append(w.arrived, time.Now())
				w.mu.Unlock()
				return []limiter.Check{check(l, 1)}
			})
		})
	}
	group.Wait()
}

// Units go back to a grant that they fit in, or more would have come back of it than it had,
// and the counter of spent ones would fall.
func TestUnspendFitsTheGrant(t *testing.T) {
	use := &usage{}
	l := &lease{use: use, older: parcel{units: 2, size: 2, takenAt: 7}, newer: parcel{units: 5, size: 8, takenAt: 7}}
	require.True(t, l.unspend(3, 7))
	require.EqualValues(t, 2, l.older.units)
	require.EqualValues(t, 8, l.newer.units)
	require.False(t, l.unspend(1, 7), "both are full")
	l.leave()
	require.Zero(t, use.spent.Load())
}

// busiest returns the largest number of requests that saturate sent in so short a time.
func (w *world) busiest(span time.Duration) (most int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	from := 0
	for i, at := range w.arrived {
		for at.Sub(w.arrived[from]) > span {
			from++
		}
		most = max(most, int64(i-from+1))
	}
	return most
}
