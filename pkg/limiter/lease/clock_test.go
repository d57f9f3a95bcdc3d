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

// Time is the monotonic clock plus what that missed, whatever happens to the wall clock.
func TestClock(t *testing.T) {
	var monotonic, wall time.Duration
	c := newClock(func() (time.Duration, time.Duration) { return monotonic, wall })
	for _, step := range []struct{ monotonic, wall, want time.Duration }{
		{10 * time.Millisecond, 10 * time.Millisecond, 10 * time.Millisecond},
		{10 * time.Millisecond, 10*time.Millisecond + 5*time.Microsecond, 20 * time.Millisecond}, // slewed
		{0, time.Second, 1020 * time.Millisecond},                                                // suspended
		{0, 0, 1020 * time.Millisecond},
		{time.Millisecond, -time.Hour, 1021 * time.Millisecond}, // set back
		{0, time.Minute, 61021 * time.Millisecond},              // and suspended afterwards
	} {
		monotonic, wall = monotonic+step.monotonic, wall+step.wall
		require.Equal(t, step.want, c.now())
		c.follow()
		require.Equal(t, step.want, c.now())
	}
	for range 10_000 { // NTP's fastest slew accumulates to nothing
		monotonic, wall = monotonic+sweepEvery, wall+sweepEvery+5*time.Microsecond
		c.follow()
	}
	require.Equal(t, 61021*time.Millisecond+10_000*sweepEvery, c.now())
}

func BenchmarkClock(b *testing.B) {
	c := newClock(systemClock())
	b.Run("both", func(b *testing.B) {
		for b.Loop() {
			c.now()
		}
	})
	b.Run("monotonic", func(b *testing.B) {
		born := time.Now()
		for b.Loop() {
			_ = time.Since(born)
		}
	})
}
