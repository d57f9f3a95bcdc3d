package redisstore_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/pkg/limiter/redisstore"
)

func TestClockWatch(t *testing.T) {
	var w redisstore.ClockWatch
	f := func(want, clock, from, to time.Duration) {
		t.Helper()
		require.Equal(t, want, w.See((time.Hour+clock).Microseconds(), from, to))
	}
	const s, ms = time.Second, time.Millisecond
	f(0, 0, 0, 10*ms)
	f(0, 5*s, 5*s, 5*s+10*ms)
	f(0, 6*s+900*ms, 6*s, 6*s) // less than a second
	f(0, 10*s, 9*s, 14*s)      // a slow answer tells little
	f(0, 15*s, 15*s, 15*s)     // and the next may be anywhere in between
	f(time.Hour-s, 15*s+time.Hour, 16*s, 16*s)
	f(0, 20*s+time.Hour-s, 20*s, 20*s+s)
	f(s-time.Hour, 20*s, 21*s, 21*s)
	f(0, 30*s, 31*s, 31*s)
}
