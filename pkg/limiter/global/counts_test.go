package global

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-edge/weir/pkg/limiter"
	"github.com/weir-edge/weir/pkg/limiter/storetest"
)

func limitOf(t testing.TB, line string, args ...any) *limiter.Limit {
	t.Helper()
	l, err := storetest.ParseLimit(strings.Fields(fmt.Sprintf(line, args...)))
	require.NoError(t, err)
	return l
}

func randomCounts(seed uint64, calm bool, prepare func(*countsWorld)) *countsWorld {
	w := newCountsWorld(seed, 2+int(seed%4))
	if !calm {
		w.net.disturb()
		for _, r := range w.regions {
			r.skew = time.Duration(w.random.Int64N(int64(10*time.Second))) - 5*time.Second
		}
	}
	if prepare != nil {
		prepare(w)
	}
	w.run(max(8*time.Second, 2*w.limit.Window), calm)
	return w
}

// Whatever happens to messages and stores, no more passes than the limit, what other regions
// admitted in the measured lag, and the shares.
func TestCountsKeepTheirBound(t *testing.T) {
	over := 0
	for seed := range uint64(worlds(30)) {
		w := randomCounts(seed, false, nil)
		require.Empty(t, w.faults, "world %d: %+v", seed, w.limit)
		if w.over > 0 {
			over++
		}
	}
	require.Positive(t, over, "a world that never exceeds a limit proves nothing")
	t.Logf("%d worlds exceeded the limit, all within their bound", over)
}

// The printed bound holds at the printed demand and delay if messages arrive.
func TestCountsKeepThePrintedBound(t *testing.T) {
	for seed := range uint64(worlds(30)) {
		w := randomCounts(seed, true, func(w *countsWorld) { w.run(time.Second, true); w.over = 0 })
		times, longest := 0.0, time.Duration(0)
		for i, r := range w.regions {
			times += r.rate * 1.5 * w.limit.Window.Seconds() / float64(w.limit.Limit) // cost is 1.5 on average
			for j := range w.regions {
				longest = max(longest, w.net.delay[i][j])
			}
		}
		// The round trip, a period on each side, and a step of the model for each.
		delay := 2*(longest+Period) + 4*tick
		bound := OvershootBounds(w.limit, len(w.regions), times, delay)
		noise := 5*math.Sqrt(times*float64(w.limit.Limit)*delay.Seconds()/w.limit.Window.Seconds()) + 4
		require.LessOrEqual(t, w.over, min(bound.Worst, bound.Demand+noise), "world %d: %+v", seed, w.limit)
	}
}

// A merge other than the maximum is detected: by what regions know, or by what passes.
func TestBrokenMergesAreCaught(t *testing.T) {
	for name, merge := range map[string]func(a, b Cell) Cell{
		"the last message wins": func(_, b Cell) Cell { return b },
		"counts are added": func(a, b Cell) Cell {
			return Cell{max(a.Incarnation, b.Incarnation), a.Count + b.Count}
		},
		"the first message wins": func(a, _ Cell) Cell { return a },
		"an incarnation is ignored": func(a, b Cell) Cell {
			return Cell{a.Incarnation, max(a.Count, b.Count)}
		},
	} {
		caught := false
		for seed := uint64(0); seed < 100 && !caught; seed++ {
			w := randomCounts(seed, false, func(w *countsWorld) {
				for _, r := range w.regions {
					r.merge = merge
				}
			})
			caught = len(w.faults) > 0
		}
		require.True(t, caught, name)
	}
}

func TestMergeIsAMaximum(t *testing.T) {
	cell := rapid.Custom(func(t *rapid.T) Cell {
		return Cell{rapid.Int64Range(0, 3).Draw(t, "incarnation"), rapid.Int64Range(0, 5).Draw(t, "count")}
	})
	rapid.Check(t, func(t *rapid.T) {
		a, b, c := cell.Draw(t, "a"), cell.Draw(t, "b"), cell.Draw(t, "c")
		require.Equal(t, a.Merge(b), b.Merge(a))
		require.Equal(t, a.Merge(b).Merge(c), a.Merge(b.Merge(c)))
		require.Equal(t, a, a.Merge(a))
		require.Contains(t, []Cell{a, b}, a.Merge(b))
	})
}

// A client that floods all regions in the same millisecond gets the printed worst case, and no
// more in that window.
func TestCountsAgainstTheSameInstant(t *testing.T) {
	for _, regions := range []int{2, 3, 5} {
		for _, line := range countsLimits {
			w := newCountsWorld(1, regions)
			w.limit = limitOf(t, line, 600, "10s")
			for _, r := range w.regions {
				r.rate = 0
			}
			w.run(20*time.Second-time.Duration(w.wall(w.regions[0])%10e6)*time.Microsecond, true)
			for range 9000 {
				for _, r := range w.regions {
					w.ask(r, "a", 1)
				}
			}
			worst := OvershootBounds(w.limit, regions, 1e6, 0).Worst
			require.EqualValues(t, worst, w.passed-whole(w.limit), "%s", w.limit.Algorithm)
			before := w.passed
			w.run(time.Second, true)
			if w.limit.Algorithm == limiter.FixedWindow {
				for _, r := range w.regions {
					w.ask(r, "a", 1)
				}
				require.Equal(t, before, w.passed)
			}
		}
	}
}

// At three times a limit of 6,000 per minute, regions 80, 140 and 220 ms apart exceed it by
// less than 3%.
func TestCountsInSteadyDemand(t *testing.T) {
	for _, loss := range []float64{0, 0.2} {
		w := newCountsWorld(1, 3)
		w.limit = limitOf(t, "r fixed_window limit=6000 window=60s")
		w.net.delay = [][]time.Duration{{0, 40e6, 70e6}, {40e6, 0, 110e6}, {70e6, 110e6, 0}}
		w.net.loss, w.net.double, w.net.jitter = loss, loss, time.Duration(2*loss*float64(300*time.Millisecond))
		for _, r := range w.regions {
			r.rate = 100 / 1.5
		}
		w.run(130*time.Second, true)
		require.Empty(t, w.faults)
		delay := 2 * (110*time.Millisecond + Period)
		bound := OvershootBounds(w.limit, 3, 3, delay)
		t.Logf("loss %.0f%%: over by %.2f%%, bound by the measured lag %.2f%%; printed for %s %.2f%%, worst %.0f%%",
			100*loss, w.over/60, w.bound/60, delay, bound.Demand/60, bound.Worst/60)
		require.LessOrEqual(t, w.over, 0.03*6000)
		require.LessOrEqual(t, w.over, bound.Demand)
	}
}

// A region that was cut off knows everything within two exchanges after its return.
func TestCountsHeal(t *testing.T) {
	w := newCountsWorld(3, 3)
	w.limit = limitOf(t, "r fixed_window limit=100000 window=60s")
	for _, r := range w.regions {
		r.rate = 1000
	}
	w.run(60*time.Second-time.Duration(w.wall(w.regions[0])%60e6)*time.Microsecond, true)
	w.run(5*time.Second, true)
	w.net.cut[0] = w.net.now + 30*time.Second
	w.run(30*time.Second, true)
	require.True(t, w.alone(w.regions[0]))
	require.False(t, w.alone(w.regions[1]))
	for _, r := range w.regions {
		r.rate = 0
	}
	w.run(2*2*(Period+160*time.Millisecond), true) // two messages each way
	require.False(t, w.alone(w.regions[0]))
	s := slot{"a", w.wall(w.regions[0]) / 60e6 * 60e6}
	for _, r := range w.regions {
		for j, o := range w.regions {
			is := o.Known(j, s.key, s.start).Count
			require.InDelta(t, is, r.Known(j, s.key, s.start).Count, float64(Share(w.limit, 3)))
			require.Positive(t, is)
		}
	}
}

// Keys below their share are not sent; if a region may keep nothing of a key, its first unit is
// sent.
func TestWhichKeysTravel(t *testing.T) {
	big, small := limitOf(t, "r fixed_window limit=6000 window=60s"), limitOf(t, "r fixed_window limit=59 window=60s")
	require.EqualValues(t, 100, Share(big, 3))
	require.EqualValues(t, 0, Share(small, 3))
	c := NewCounts(Config{Self: 0, Regions: 3, Incarnation: 1})
	now := time.Hour
	for i := range 90 {
		now += 10 * Period // slowly
		c.Observe(big, "big", 0, int64(i+1), now)
	}
	require.Empty(t, c.Send(1, now).Counts)
	c.Observe(small, "small", 0, 1, now)
	m := c.Send(1, now)
	require.Equal(t, []Count{{"small", "", 0, 60e6, Cell{1, 1}}}, m.Counts)
	require.Empty(t, c.Send(1, now).Counts, "it has been sent")
	require.Len(t, c.Send(1, now+time.Second).Counts, 1, "no region answered")
	c.Observe(big, "big", 0, 130, now)
	require.Len(t, c.Send(1, now).Counts, 1, "it grows fast")
	c.Observe(big, "big", 0, 5999, now)
	c.Send(1, now)
	now += time.Minute
	c.Observe(big, "big", 0, 6000, now)
	require.NotEmpty(t, c.Send(1, now).Counts, "little is left")
}

// Implausible numbers of peers are bounded.
func TestCountsRefuseWhatCannotBe(t *testing.T) {
	c := NewCounts(Config{Self: 0, Regions: 2, Incarnation: 1, MaxKeys: 3})
	wall := storetest.Epoch
	receive := func(from int, n ...Count) []Gain {
		return c.Receive(&Message{Header: Header{From: from, Incarnation: 1}, Counts: n}, wall, 0)
	}
	good := Count{"a", "", wall, 60e6, Cell{1, 5}}
	require.Len(t, receive(1, good), 1)
	require.Empty(t, receive(1, good), "a doubled message gains nothing")
	for _, from := range []int{-1, 0, 2} {
		require.Empty(t, receive(from, good))
	}
	for name, n := range map[string]Count{
		"old":          {"b", "", wall - 200e6, 60e6, Cell{1, 5}},
		"early":        {"b", "", wall + 11e6, 60e6, Cell{1, 5}},
		"no width":     {"b", "", wall, 0, Cell{1, 5}},
		"endless":      {"b", "", wall, 1 << 60, Cell{1, 5}},
		"negative":     {"b", "", wall, 60e6, Cell{1, -5}},
		"out of range": {"b", "", wall, 60e6, Cell{1, 1 << 60}},
	} {
		require.Empty(t, receive(1, n), name)
	}
	receive(1, Count{"b", "", wall, 60e6, Cell{1, 5}}, Count{"c", "", wall, 60e6, Cell{1, 5}}, Count{"d", "", wall, 60e6, Cell{1, 5}})
	kept, _, refused := c.Keys()
	require.Equal(t, 3, kept)
	require.EqualValues(t, 7, refused)
	c.Sweep(wall + 200e6)
	kept, _, _ = c.Keys()
	require.Zero(t, kept)
}

// A counter of a later incarnation is sent, although it is smaller.
func TestSmallerCountTravels(t *testing.T) {
	l := limitOf(t, "r fixed_window limit=10 window=60s")
	a, b := NewCounts(Config{Self: 0, Regions: 2, Incarnation: 1}), NewCounts(Config{Self: 1, Regions: 2, Incarnation: 1})
	wall := storetest.Epoch
	a.Observe(l, "k", wall, 7, 1)
	b.Receive(a.Send(1, 1), wall, 1)
	require.EqualValues(t, 7, b.Others("k", wall))
	a.restart(5)
	a.Observe(l, "k", wall, 1, 2)
	require.Equal(t, []Gain{{"k", wall, 1}}, b.Receive(a.Send(1, 2), wall, 2))
	require.EqualValues(t, 1, b.Others("k", wall))
}
