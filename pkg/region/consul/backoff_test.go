package consul

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestBackoffIsBounded(t *testing.T) {
	limits := []time.Duration{
		250 * time.Millisecond, 500 * time.Millisecond, time.Second, 2 * time.Second, 4 * time.Second,
		8 * time.Second, 8 * time.Second, 8 * time.Second,
	}
	for attempt, limit := range limits {
		require.Equal(t, limit, Backoff(attempt, 0), "attempt %d", attempt)
		require.Equal(t, limit/2, Backoff(attempt, 0.5), "attempt %d", attempt)
		require.Positive(t, Backoff(attempt, math.Nextafter(1, 0)), "attempt %d", attempt)
	}
	require.Equal(t, 250*time.Millisecond, Backoff(-1, 0))
	rapid.Check(t, func(t *rapid.T) {
		attempt := rapid.Int().Draw(t, "attempt")
		d := Backoff(attempt, rapid.Float64Range(0, math.Nextafter(1, 0)).Draw(t, "random"))
		require.Positive(t, d)
		require.LessOrEqual(t, d, 8*time.Second)
	})
}

// The schedule of 200 watches that lose Consul at the same instant: how often they retry while
// it is unreachable, and how they reconnect when it returns.
func TestBackoffSpreadsAFleet(t *testing.T) {
	const (
		watches = 200
		bucket  = 250 * time.Millisecond
		away    = 60 * time.Second
		settled = 12 * time.Second // when all have reached the longest delay
	)
	rng := rand.New(rand.NewPCG(1, 2))
	attempts := make([]int, away/bucket)
	back := make([]int, maxBackoff/bucket)
	total := 0
	for range watches {
		var now time.Duration
		for attempt := 0; ; attempt++ {
			now += Backoff(attempt, rng.Float64())
			if now >= away {
				break
			}
			attempts[now/bucket]++
			total++
		}
		require.Less(t, now, away+maxBackoff, "reconnects too late")
		back[(now-away)/bucket]++
	}

	t.Logf("%d watches lose Consul for %s; attempts per %s, until they settle:\n%s", watches, away, bucket, histogram(attempts[:settled/bucket], bucket))
	t.Logf("after its return; reconnections per %s:\n%s", bucket, histogram(back, bucket))
	require.Less(t, total, watches*25, "a watch tries no more than 25 times in a minute")
	// The first attempts come early, so that a short interruption stays short: Consul can
	// answer 1,600 per second, or refuse them, which costs less.
	for i, n := range attempts {
		require.LessOrEqual(t, n, 3*watches/2, "bucket %d", i)
		if time.Duration(i)*bucket >= settled {
			require.LessOrEqual(t, n, watches/8, "%s after the loss", time.Duration(i)*bucket)
		}
	}
	for i, n := range back {
		require.LessOrEqual(t, n, watches/8, "%s after the return", time.Duration(i)*bucket)
	}
}

// histogram draws one line per bucket.
func histogram(counts []int, bucket time.Duration) string {
	var b strings.Builder
	for i, n := range counts {
		fmt.Fprintf(&b, "%7.2fs %4d %s\n", (time.Duration(i) * bucket).Seconds(), n, strings.Repeat("#", (n+1)/2))
	}
	return b.String()
}
