package report

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/pkg/limiter"
	"github.com/weir-edge/weir/pkg/limiter/memory"
	"github.com/weir-edge/weir/pkg/limiter/storetest"
)

// A node that has every other node's count decides like the strict store at any moment: same
// verdict, remaining, retry-after and reset-after.
func TestKnowsAsTheStoreDoes(t *testing.T) {
	for _, line := range []string{
		"r fixed_window limit=%d window=%s",
		"r sliding_window limit=%d window=%s",
		"r token_bucket limit=%d window=%s burst=%[1]d",
	} {
		for seed := range uint64(200) {
			random := rand.New(rand.NewPCG(seed, 1))
			l := limit(t, fmt.Sprintf(line, 1+random.Int64N(30), []string{"10s", "10001ms", "60s"}[random.IntN(3)]))
			strict := limit(t, fmt.Sprintf(line, l.Limit, l.Window))
			strict.Reported = false
			now := storetest.Epoch + random.Int64N(int64(time.Hour/time.Microsecond))
			m := memory.New(memory.Config{Clock: func() int64 { return now }})
			e := &entry{limit: l}
			for range 300 {
				now += random.Int64N(l.Window.Microseconds()/5) / 1000 * 1000
				c := limiter.Check{Limit: strict, Key: storetest.Key("a", strict), Cost: random.Int64N(4)}
				var d limiter.Decision
				require.NoError(t, m.Take(t.Context(), []limiter.Check{c}, &d))
				want := d.Results[0]

				mine := check(l, c.Cost)
				var got limiter.Result
				at := e.roll(l, now)
				got.Allowed = e.admits(l, c.Cost, at, 0)
				if got.Charged = got.Allowed && c.Cost > 0; got.Charged {
					if l.Algorithm == limiter.TokenBucket { // as after an answer
						e.level, e.levelAt = e.drained(l, at)+float64(c.Cost), at
					} else {
						e.pending += c.Cost
					}
				}
				e.describe(&mine, &got, at)
				got.Source = want.Source
				if l.Algorithm == limiter.TokenBucket { // floating point
					require.InDelta(t, want.RetryAfter, got.RetryAfter, float64(2*time.Microsecond))
					require.InDelta(t, want.ResetAfter, got.ResetAfter, float64(2*time.Microsecond))
					got.RetryAfter, got.ResetAfter = want.RetryAfter, want.ResetAfter
				}
				require.Equal(t, want, got, "%s seed %d", l.Algorithm, seed)
			}
		}
	}
}

// As the limit nears, a part of the requests is refused if other nodes admit some.
func TestLearn(t *testing.T) {
	l := limit(t, "r fixed_window limit=1000 window=10s")
	const trip = 5000
	answer := func(count, own, asked int64) *entry {
		e := &entry{limit: l, start: 1e9, count: count, heard: 1e9 + 5e6}
		e.updateRefuseShare(l, own*10, own, asked, every, trip)
		return e
	}
	// 10 nodes, each asked for 20 in 100 ms: 210 until the next answer, about 90 unseen.
	require.Zero(t, answer(500, 20, 20).refuse, "plenty is left")
	e := answer(850, 20, 20)
	require.InDelta(t, 1-(150-90)/210.0, e.refuse, 0.01)
	e = answer(850, 10, 20) // half was refused: the demand is the same
	require.InDelta(t, 1-(150-45)/210.0, e.refuse, 0.01)
	require.EqualValues(t, 1, answer(1000, 20, 20).refuse)
	require.False(t, e.admits(l, 1, e.heard+1, e.refuse-0.01))
	require.True(t, e.admits(l, 1, e.heard+1, e.refuse))
	require.True(t, e.admits(l, 1, e.heard+refuseFor+1, 0), "it is not valid for long")

	alone := &entry{limit: l, start: 1e9, count: 999, heard: 1e9 + 5e6}
	alone.updateRefuseShare(l, 200, 200, 400, every, trip)
	require.Zero(t, alone.refuse, "a node that is alone knows all that counts")
	require.True(t, alone.admits(l, 1, alone.heard, 0))
	require.False(t, alone.admits(l, 2, alone.heard, 0))
}

// A clock that is set back does not reopen a window, unless it was set far back.
func TestClockSetBack(t *testing.T) {
	l := limit(t, "r fixed_window limit=10 window=1m")
	e := &entry{limit: l}
	t0 := int64(120_000_000)
	require.Equal(t, t0, e.roll(l, t0))
	e.pending = 10
	require.Equal(t, t0, e.roll(l, t0-5_000_000))
	require.False(t, e.admits(l, 1, t0, 0))
	require.Equal(t, t0-30_000_000, e.roll(l, t0-30_000_000))
	require.False(t, e.admits(l, 1, t0-30_000_000, 0), "the known count is dated now")
	require.Equal(t, t0, e.roll(l, t0))
	require.True(t, e.admits(l, 1, t0, 0))
	require.EqualValues(t, 10, e.late, "the window before learns of it")
}
