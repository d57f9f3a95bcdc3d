package consul

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestClock(t *testing.T) {
	now := time.Date(2026, 3, 1, 10, 0, 0, 999_000_000, time.UTC)
	f := func(date string, known bool, low, high time.Duration) {
		t.Helper()
		c := &Client{clock: &clock{}}
		c.clock.hear(date, now)
		ahead, heard := c.Ahead()
		require.Equal(t, known, heard)
		require.GreaterOrEqual(t, ahead, low)
		require.LessOrEqual(t, ahead, high)
	}
	f("", false, 0, 0)
	f("yesterday", false, 0, 0)
	for _, same := range []time.Duration{-4 * time.Second, -time.Second, 0, time.Second, 4 * time.Second} { // nothing to correct
		f(now.Add(same).Format(http.TimeFormat), true, 0, 0)
	}
	f(now.Add(3*time.Hour).Format(http.TimeFormat), true, 3*time.Hour-time.Second, 3*time.Hour+time.Second)
	f(now.Add(-3*time.Hour).Format(http.TimeFormat), true, -3*time.Hour-time.Second, -3*time.Hour+time.Second)

	c := &Client{clock: &clock{}}
	c.clock.hear(now.Add(time.Hour).Format(http.TimeFormat), now)
	c.clock.hear(now.Format(http.TimeFormat), now) // set right meanwhile
	ahead, _ := c.Ahead()
	require.Zero(t, ahead)
}
