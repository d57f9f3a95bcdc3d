package boottime_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/pkg/limiter/boottime"
)

// Time is the monotonic clock plus what that missed, whatever happens to the wall clock.
func TestClock(t *testing.T) {
	var monotonic, wall time.Duration
	c := boottime.New(func(time.Time) (time.Duration, time.Duration) { return monotonic, wall })
	for _, step := range []struct{ monotonic, wall, want time.Duration }{
		{10 * time.Millisecond, 10 * time.Millisecond, 10 * time.Millisecond},
		{10 * time.Millisecond, 10*time.Millisecond + 5*time.Microsecond, 20 * time.Millisecond}, // slewed
		{0, time.Second, 1020 * time.Millisecond},                                                // suspended
		{0, 0, 1020 * time.Millisecond},
		{time.Millisecond, -time.Hour, 1021 * time.Millisecond}, // set back
		{0, time.Minute, 61021 * time.Millisecond},              // and suspended afterwards
	} {
		monotonic, wall = monotonic+step.monotonic, wall+step.wall
		require.Equal(t, step.want, c.Now())
		c.Follow()
		require.Equal(t, step.want, c.Now())
	}
	const often = 10 * time.Millisecond
	for range 10_000 { // NTP's fastest slew accumulates to nothing
		monotonic, wall = monotonic+often, wall+often+5*time.Microsecond
		c.Follow()
	}
	require.Equal(t, 61021*time.Millisecond+10_000*often, c.Now())
}

func BenchmarkClock(b *testing.B) {
	c := boottime.New(nil)
	b.Run("both", func(b *testing.B) {
		for b.Loop() {
			c.Now()
		}
	})
	b.Run("monotonic", func(b *testing.B) {
		born := time.Now()
		for b.Loop() {
			_ = time.Since(born)
		}
	})
}
