package lease

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A machine that was suspended does not spend its leases: its first request afterwards asks the
// store.
func TestASuspendedMachine(t *testing.T) {
	for _, set := range []time.Duration{0, -time.Hour} { // its wall clock, before
		inWorld(t, 1, 1, func(t *testing.T, w *world) {
			n, c := w.nodes[0], check(limit(t, generous), 1)
			n.hot(c)
			require.Positive(t, n.held(c))
			n.wall.Add(int64(set))
			sleep(2 * sweepEvery)
			n.request(c)
			require.Positive(t, n.held(c), "a clock that is set back changes nothing")

			w.suspend(n, c.Limit.LeaseTime())
			calls := n.calls.Load()
			require.Zero(t, n.held(c))
			require.True(t, n.request(c))
			require.Greater(t, n.calls.Load(), calls)
		})
	}
}

// A wall clock that is set ahead ends leases once, and their units are returned.
func TestAClockSetAhead(t *testing.T) {
	inWorld(t, 2, 1, func(t *testing.T, w *world) {
		n, c := w.nodes[0], check(limit(t, generous), 1)
		n.hot(c)
		require.Positive(t, n.held(c))
		n.wall.Add(int64(time.Hour))
		require.Zero(t, n.held(c))
		sleep(2 * c.Limit.LeaseTime())
		require.EqualValues(t, 200, w.used(c))
		n.hot(c)
		require.Positive(t, n.held(c), "it leases again")
		n.lease.Close()
		require.EqualValues(t, 400, w.used(c))
	})
}
