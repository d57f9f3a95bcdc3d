package logs

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestSampler(t *testing.T) {
	var s Sampler
	start := time.Unix(1_800_000_000, 0)
	f := func(at time.Duration, wantSkipped int64, wantLog bool) {
		t.Helper()
		skipped, log := s.Sample(start.Add(at))
		require.Equal(t, wantLog, log)
		require.Equal(t, wantSkipped, skipped)
	}
	f(0, 0, true)
	f(1*time.Millisecond, 0, false)
	f(999*time.Millisecond, 0, false)
	f(1000*time.Millisecond, 2, true)
	f(1001*time.Millisecond, 0, false)
	f(5000*time.Millisecond, 1, true)
	f(6000*time.Millisecond, 0, true)
	f(-time.Hour, 0, true) // the clock was set back
	f(-time.Hour+time.Millisecond, 0, false)
}
