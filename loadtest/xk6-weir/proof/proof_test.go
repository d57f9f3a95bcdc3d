package proof

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-edge/weir/loadtest/xk6-weir/oracle"
	"github.com/weir-edge/weir/pkg/limiter"
)

func clean(t require.TestingT, l oracle.Line) {
	require.Zero(t, l.Overadmitted, "%+v", l)
	require.Zero(t, l.WronglyRefused, "%+v", l)
	require.Zero(t, l.RetryWrong, "%+v", l)
}

// Whatever the rule, the load and the network: a correct limiter is never accused.
func TestNeverAccusesFalsely(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		ms := func(least, most int, name string) time.Duration {
			return time.Duration(rapid.IntRange(least, most).Draw(t, name)) * time.Millisecond
		}
		l := &limiter.Limit{
			Rule:      "r",
			Algorithm: rapid.SampledFrom(limiter.Algorithms()).Draw(t, "algorithm"),
			Limit:     int64(rapid.IntRange(1, 30).Draw(t, "limit")),
			Window:    ms(1, 5000, "window"),
		}
		bucket := l.Algorithm == limiter.TokenBucket || l.Algorithm == limiter.LeakyBucket
		if bucket {
			l.Burst = int64(rapid.IntRange(1, 40).Draw(t, "burst"))
		}
		if l.Algorithm == limiter.RollingWindow {
			l.Storage = rapid.SampledFrom([]limiter.Storage{limiter.Ring, limiter.SortedSet}).Draw(t, "storage")
			if rapid.Bool().Draw(t, "spaced") {
				l.MinInterval = ms(1, int(l.Window.Milliseconds()), "interval")
			}
		}
		l.CountDenied = l.Algorithm != limiter.Concurrency && rapid.Bool().Draw(t, "count denied")
		require.Empty(t, l.Validate())
		w := &world{
			limit: l, rule: told(l), seed: rapid.Uint64().Draw(t, "seed"),
			requests:   rapid.IntRange(1, 400).Draw(t, "requests"),
			pause:      max(time.Microsecond, l.Window/time.Duration(rapid.IntRange(1, 100).Draw(t, "requests a window"))),
			delay:      ms(0, 50, "delay"),
			stragglers: rapid.SampledFrom([]int{0, 2, 10}).Draw(t, "stragglers"),
			straggle:   ms(0, 8000, "straggle"),
			lost:       rapid.SampledFrom([]int{0, 0, 20, 300}).Draw(t, "lost"),
			cost:       1,
			bots:       rapid.IntRange(0, 3).Draw(t, "bots"),
			fresh:      rapid.Bool().Draw(t, "fresh"),
		}
		if w.clockError = ms(0, 20, "clock error"); w.clockError > 0 {
			w.offset = ms(-int(w.clockError.Milliseconds()), int(w.clockError.Milliseconds()), "offset")
		}
		if !w.fresh {
			w.before = rapid.IntRange(0, 40).Draw(t, "before")
		}
		if l.Algorithm == limiter.Concurrency {
			w.hold, w.spare = ms(0, 500, "hold"), ms(0, 500, "spare")
			w.rule.Hold = w.hold
		} else {
			w.cost = int64(rapid.IntRange(1, int(min(3, l.MaxCost()))).Draw(t, "cost"))
		}
		clean(t, w.run(t))
	})
}

// The same under a load that takes each limit to its edge.
func TestSaturatedIsClean(t *testing.T) {
	t.Parallel()
	for _, l := range everyAlgorithm() {
		named(t, l, func(t *testing.T, l *limiter.Limit) {
			for seed := range uint64(5) {
				line := saturated(l, seed).run(t)
				clean(t, line)
				require.NotZero(t, line.Admitted)
				require.NotZero(t, line.Refused)
				require.Less(t, line.Unjudged, int64(10))
			}
		})
	}
}

// One request too many in a window.
func TestAccusesOneMore(t *testing.T) {
	t.Parallel()
	for _, l := range everyAlgorithm() {
		named(t, l, func(t *testing.T, l *limiter.Limit) {
			w := saturated(l, 7)
			w.limit.Limit++
			if l.MinInterval > 0 {
				w.limit.MinInterval = l.MinInterval * 8 / 10
			}
			line := w.run(t)
			require.NotZero(t, line.Overadmitted, "%+v", line)
			require.NotZero(t, line.Worst.Excess)
			require.Equal(t, "k", line.Worst.Key)
		})
	}
}

// A bucket that is one too deep.
func TestAccusesADeeperBucket(t *testing.T) {
	t.Parallel()
	for _, a := range []limiter.Algorithm{limiter.TokenBucket, limiter.LeakyBucket} {
		l := &limiter.Limit{Rule: "r", Algorithm: a, Limit: 10, Window: time.Second, Burst: 5}
		named(t, l, func(t *testing.T, l *limiter.Limit) {
			w := saturated(l, 8)
			w.limit.Burst++
			require.NotZero(t, w.run(t).Overadmitted)
		})
	}
}

// A window that is a tenth too short.
func TestAccusesAShortWindow(t *testing.T) {
	t.Parallel()
	for _, l := range everyAlgorithm() {
		if l.Algorithm == limiter.Concurrency {
			continue // its window is only how long a lost slot lasts
		}
		named(t, l, func(t *testing.T, l *limiter.Limit) {
			w := saturated(l, 9)
			w.limit.Window = l.Window * 9 / 10
			require.NotZero(t, w.run(t).Overadmitted)
		})
	}
}

// A rule in shadow, passed off as enforced.
func TestAccusesAShadow(t *testing.T) {
	t.Parallel()
	for _, l := range everyAlgorithm() {
		named(t, l, func(t *testing.T, l *limiter.Limit) {
			w := saturated(l, 10)
			w.limit.Shadow = true
			w.requests, w.bots = 1000, 0
			line := w.run(t)
			require.Greater(t, line.Overadmitted, line.Admitted/2, "%+v", line)
		})
	}
}

// One of a thousand refusals lets the request pass.
func TestAccusesALeak(t *testing.T) {
	t.Parallel()
	for _, l := range everyAlgorithm() {
		named(t, l, func(t *testing.T, l *limiter.Limit) {
			w := saturated(l, 11)
			w.open = 100
			require.NotZero(t, w.run(t).Overadmitted)
		})
	}
}

// Refused requests that should count do not.
func TestAccusesDeniedThatDoNotCount(t *testing.T) {
	t.Parallel()
	for _, l := range everyAlgorithm() {
		if l.Algorithm == limiter.Concurrency || l.Algorithm == limiter.FixedWindow {
			continue // it has none; and a full one stays full to the window's end anyway
		}
		named(t, l, func(t *testing.T, l *limiter.Limit) {
			l.CountDenied = true
			clean(t, saturated(l, 15).run(t))
			w := saturated(l, 15)
			w.limit.CountDenied = false
			require.NotZero(t, w.run(t).Overadmitted)
		})
	}
}

// A limit that is one too small, and one request in a hundred refused without a cause.
func TestAccusesRefusals(t *testing.T) {
	t.Parallel()
	for _, l := range everyAlgorithm() {
		named(t, l, func(t *testing.T, l *limiter.Limit) {
			w := saturated(l, 12)
			w.pause *= 10
			w.bots = 0
			w.shut = 20
			if l.Algorithm == limiter.Concurrency {
				w.pause *= 20 // a slot may be held for a second after the answer
			}
			line := w.run(t)
			require.NotZero(t, line.WronglyRefused, "%+v", line)
			if l.Limit == 1 || l.Algorithm == limiter.Concurrency {
				return
			}
			w = saturated(l, 13)
			w.rule.Limit = l.Limit + 2
			if w.rule.Burst > 0 {
				w.rule.Burst += 2
			}
			line = w.run(t)
			require.NotZero(t, line.WronglyRefused+line.RetryWrong, "%+v", line)
		})
	}
}

// A retry-after that is wrong in either direction.
func TestAccusesAWrongRetryAfter(t *testing.T) {
	t.Parallel()
	for _, l := range []*limiter.Limit{
		{Rule: "r", Algorithm: limiter.FixedWindow, Limit: 10, Window: 10 * time.Second},
		{Rule: "r", Algorithm: limiter.SlidingWindow, Limit: 10, Window: 10 * time.Second},
		{Rule: "r", Algorithm: limiter.TokenBucket, Limit: 5, Window: 50 * time.Second, Burst: 2},
		{Rule: "r", Algorithm: limiter.LeakyBucket, Limit: 5, Window: 50 * time.Second, Burst: 2},
		{Rule: "r", Algorithm: limiter.RollingWindow, Limit: 10, Window: 10 * time.Second},
		{Rule: "r", Algorithm: limiter.RollingWindow, Limit: 100, Window: 10 * time.Second, MinInterval: 4 * time.Second},
	} {
		named(t, l, func(t *testing.T, l *limiter.Limit) {
			clean(t, saturated(l, 14).run(t))
			for name, wrong := range map[string]func(int64) int64{
				"half": func(s int64) int64 { return max(1, s/2) },
				"late": func(s int64) int64 { return s + 2 },
			} {
				w := saturated(l, 14)
				w.retry = wrong
				line := w.run(t)
				require.NotZero(t, line.RetryWrong, "%s: %+v", name, line)
				require.NotZero(t, line.RetryWorst)
				require.Zero(t, line.Overadmitted)
			}
		})
	}
}
