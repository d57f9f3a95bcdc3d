package storetest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/pkg/limiter"
)

// merge runs a line about what regions have admitted. The number is the count in the window
// that begins at the last time; the answer is what was known before and, for a tally, also
// the region's count.
//
//	1s  merge eu r*30 0s  -> 0
//	1s  tally n1 r*5 0s   -> 0 5
func (r *runner) merge(op string, words, want []string) {
	r.t.Helper()
	store, ok := r.store.(limiter.Merger)
	if !ok || len(words) != 3 {
		r.fail("needs a store that merges, a name, a count and a start")
	}
	c := r.checks(words[1:2], false)[0]
	start, width := Epoch+r.duration(words[2]).Microseconds(), c.Limit.Window.Microseconds()
	got := ""
	switch op {
	case "merge":
		m := []limiter.Merge{{Limit: c.Limit, Key: c.Key, Region: words[0], Start: start, Width: width, Count: c.Cost}}
		store.Merge(context.Background(), m)
		if got = fmt.Sprint(m[0].Known); m[0].Early {
			got = "early"
		}
		if m[0].Err != nil {
			r.fail("%v", m[0].Err)
		}
	case "tally":
		t := []limiter.Tally{{Key: c.Key, Start: start, Width: width, Count: c.Cost}}
		store.Tally(context.Background(), words[0], t)
		if got = fmt.Sprint(t[0].Known, t[0].Total); t[0].Err != nil {
			r.fail("%v", t[0].Err)
		}
	}
	if w := strings.Join(want, " "); got != w {
		r.fail("got %s, want %s", got, w)
	}
}

// RunMerges lets a store decide requests and merge at random what three regions admitted,
// in messages that come twice or late. It checks that everything is charged exactly once,
// and returns all answers, which are the same for every store.
func RunMerges(t *testing.T, sequences int, open Open) (answers []string) {
	for _, line := range []string{
		"r fixed_window limit=%d window=10s global",
		"r sliding_window limit=%d window=10s global",
		"r token_bucket limit=%d window=10s burst=%[1]d global",
		"r leaky_bucket limit=%d window=10s burst=%[1]d global",
		"r fixed_window limit=%d window=10s leased global",
		"r token_bucket limit=%d window=10s burst=%[1]d leased global",
	} {
		t.Run(strings.Join(strings.Fields(line)[1:2], " "), func(t *testing.T) {
			for seed := range sequences {
				random := rand.New(rand.NewPCG(uint64(seed), 16))
				l, err := ParseLimit(strings.Fields(fmt.Sprintf(line, 10+random.Int64N(100))))
				require.NoError(t, err)
				m := &merges{T: t, random: random, limit: l, counted: map[region]int64{}, merged: map[region]int64{}}
				m.store = open(t, m.clock.Now)
				for range 200 {
					m.step()
				}
				answers = append(answers, m.answers...)
			}
		})
	}
	return answers
}

type merges struct {
	*testing.T
	random          *rand.Rand
	clock           Clock
	store           limiter.FullStore
	limit           *limiter.Limit
	now             time.Duration
	counted, merged map[region]int64
	used            int64 // in the present window: what passed here, and what was merged
	answers         []string
}

type region struct {
	name  string
	start int64
}

func (m *merges) step() {
	window := m.limit.Window.Microseconds()
	was := m.now / m.limit.Window
	m.now += time.Duration(m.random.Int64N(int64(800 * time.Millisecond))).Round(time.Millisecond)
	m.clock.Set(m.now)
	if m.now/m.limit.Window != was {
		m.used = 0
	}
	start := m.clock.Now() - m.clock.Now()%window
	key := Key("a", m.limit)
	if m.random.IntN(2) == 0 {
		var d limiter.Decision
		check := limiter.Check{Limit: m.limit, Key: key, Cost: 1 + m.random.Int64N(4)}
		require.NoError(m, m.store.Take(context.Background(), []limiter.Check{check}, &d))
		if m.limit.Algorithm == limiter.FixedWindow {
			require.Equal(m, m.used+check.Cost <= m.limit.Limit, d.Allowed, "%d used of %d", m.used, m.limit.Limit)
		}
		if d.Allowed {
			m.used += check.Cost
		}
		r := d.Results[0]
		m.answers = append(m.answers, fmt.Sprint(r.Allowed, r.Remaining, r.RetryAfter, r.ResetAfter))
		return
	}
	at := region{[]string{"eu", "ap", "us"}[m.random.IntN(3)], start + window*(m.random.Int64N(3)-1)}
	m.counted[at] += m.random.Int64N(m.limit.Limit / 4)
	reported := m.counted[at]
	if m.random.IntN(4) == 0 { // late
		reported = m.random.Int64N(reported + 1)
	}
	one := []limiter.Merge{{Limit: m.limit, Key: key, Region: at.name, Start: at.start, Width: window, Count: reported}}
	m.store.(limiter.Merger).Merge(context.Background(), one)
	require.NoError(m, one[0].Err)
	m.answers = append(m.answers, fmt.Sprint(one[0].Known, one[0].Early))
	bucket := m.limit.Algorithm.IsBucket()
	if reported > m.merged[at] {
		require.Equal(m, at.start > start && !bucket, one[0].Early)
	}
	if !one[0].Early {
		require.Equal(m, m.merged[at], one[0].Known)
		if at.start == start {
			m.used += max(0, reported-m.merged[at])
		}
		m.merged[at] = max(m.merged[at], reported)
	}
}
