package global

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func randomRights(seed uint64, config RightsConfig, prepare func(*rightsWorld)) *rightsWorld {
	w := newRightsWorld(seed, 2+int(seed%4), config, "")
	w.net.disturb()
	for _, r := range w.regions {
		r.skew = time.Duration(w.random.Int64N(int64(quickRights.Skew))) - quickRights.Skew/2
	}
	if prepare != nil {
		prepare(w)
	}
	w.run(30*time.Second, false)
	return w
}

// Whatever the network does to messages and the regions to their stores, never more than
// the limit passes: in a window by its name, or beyond a bucket at any time.
func TestRightsAreNeverExceeded(t *testing.T) {
	var passed, claimed, moved int64
	for seed := range uint64(worlds(20)) {
		w := randomRights(seed, quickRights, nil)
		require.Empty(t, w.faults, "world %d: %+v", seed, w.limit)
		passed += w.total
		for _, r := range w.regions {
			claimed += r.terms.claimed
			moved += int64(r.journal.position)
		}
	}
	require.Positive(t, claimed, "no region's part was taken over")
	t.Logf("%d units passed; rights moved %d times, and parts were taken over %d times", passed, moved, claimed)
}

// What would break the promise is caught in random worlds.
func TestBrokenGrantsAreCaught(t *testing.T) {
	for name, broken := range map[string]struct {
		config  RightsConfig
		prepare func(w *rightsWorld)
	}{
		"a doubled grant counts twice": {quickRights, credits(func(was, is Grant, window int64) (int64, int64) {
			return is.Share, is.Now
		})},
		"a grant counts in a window that has begun only here": {quickRights, credits(func(was, is Grant, window int64) (int64, int64) {
			return is.Share - was.Share, is.Share - was.Share
		})},
		"more arrives than was given": {quickRights, credits(func(was, is Grant, window int64) (int64, int64) {
			share, now := credit(was, is, window)
			return share + 1, now + 1
		})},
		"a region spends after its term": {quickRights, func(w *rightsWorld) {
			for _, r := range w.regions {
				r.terms.term *= 5
			}
		}},
		"no majority is needed": {quickRights, func(w *rightsWorld) {
			for _, r := range w.regions {
				r.terms.enough = func(int, int, bool) bool { return true }
			}
		}},
		"a restart forgets nothing": {quickRights, func(w *rightsWorld) {
			for _, r := range w.regions {
				r.lostAt = -1 << 50
				r.config.Skew = -1 << 60
			}
		}},
	} {
		caught := false
		for seed := uint64(0); seed < 300 && !caught; seed++ {
			caught = len(randomRights(seed, broken.config, broken.prepare).faults) > 0
		}
		require.True(t, caught, name)
	}
}

func credits(broken func(was, is Grant, window int64) (int64, int64)) func(*rightsWorld) {
	return func(w *rightsWorld) {
		for _, r := range w.regions {
			r.credit = broken
		}
	}
}

// calmRights is a world of three regions as far apart as those of the lab, some time after
// its start.
func calmRights(t *testing.T, line string, rates ...float64) *rightsWorld {
	w := newRightsWorld(1, len(rates), RightsConfig{}, line)
	w.net.delay = [][]time.Duration{{0, 40e6, 70e6}, {40e6, 0, 110e6}, {70e6, 110e6, 0}}
	if len(rates) == 2 {
		w.net.delay = [][]time.Duration{{0, 40e6}, {40e6, 0}}
	}
	for _, r := range w.regions {
		r.rate = 0
	}
	// The first whole epoch, and the time in which a bucket's rights stand still.
	w.run(5*time.Minute-time.Duration(w.wall(w.regions[0])%300e6)*time.Microsecond+2*MaxSkew+time.Second, true)
	w.run(5*time.Minute+40*time.Second-2*MaxSkew-time.Second, true)
	w.run(20*time.Second, true)
	for i, r := range w.regions {
		r.rate = rates[i] / 1.5
		r.passed = 0
	}
	w.total, w.asked = 0, 0
	return w
}

// With three times the demand, evenly or not, all that may pass does, almost.
func TestRightsFollowDemand(t *testing.T) {
	for _, rates := range [][]float64{{100, 100, 100}, {290, 5, 5}, {0, 300, 0}, {200, 100, 0}, {10, 60, 60}} {
		w := calmRights(t, "r fixed_window limit=6000 window=60s", rates...)
		w.run(60*time.Second, true)
		require.Empty(t, w.faults)
		// Of each of two keys.
		possible := min(2*6000, w.asked)
		under := 1 - float64(w.total)/float64(possible)
		t.Logf("asked for %v a second: %d of %d passed, under-use %.2f %%", rates, w.total, possible, 100*under)
		require.LessOrEqual(t, under, 0.03)
	}
	w := calmRights(t, "r token_bucket limit=6000 window=60s burst=6000", 290, 5, 5)
	w.run(60*time.Second, true) // the burst
	w.total = 0
	w.run(60*time.Second, true)
	require.Empty(t, w.faults)
	t.Logf("a bucket: %d passed of %d", w.total, 2*6000)
	require.GreaterOrEqual(t, float64(w.total), 0.97*2*6000)
}

// When all demand moves to another region, what is unspent is there within three seconds.
func TestRightsMove(t *testing.T) {
	w := calmRights(t, "r fixed_window limit=6000 window=60s", 60, 0, 0)
	w.run(20*time.Second, true)
	w.regions[0].rate, w.regions[2].rate = 0, 200/1.5
	w.run(3*time.Second, true)
	unspent := int64(6000)
	r := w.regions[2]
	for s, n := range w.passed {
		if s.key == "a" && s.start == w.wall(r)/60e6*60e6 {
			unspent -= n
		}
	}
	_, held := r.Held(w.limit, "a", w.wall(r))
	t.Logf("%d of %d unspent units are held where they are asked for", held, unspent)
	require.GreaterOrEqual(t, float64(held), 0.95*float64(unspent))
}

// A region that is cut off spends what it holds until its term ends; the others lose only
// that. What it held returns with the next epoch, and it gets its part back later.
func TestRightsOfARegionThatIsCutOff(t *testing.T) {
	config := quickRights
	config.Term, config.Epoch = 4*time.Second, 20*time.Second
	w := newRightsWorld(1, 3, config, "r fixed_window limit=900 window=2s")
	for _, r := range w.regions {
		r.rate = 900
	}
	begin := func() {
		w.run(20*time.Second-time.Duration(w.wall(w.regions[0])%20e6)*time.Microsecond, true)
	}
	spent := func(length time.Duration) []int64 {
		for _, r := range w.regions {
			r.passed = 0
		}
		w.run(length, true)
		var list []int64
		for _, r := range w.regions {
			list = append(list, r.passed/2)
		}
		return list
	}
	begin()
	w.net.cut[0] = w.net.now + 45*time.Second
	for _, n := range spent(4 * time.Second) {
		require.InDelta(t, 600, n, 60)
	}
	during := spent(4 * time.Second)
	require.Zero(t, during[0], "its term has ended")
	begin()
	heir := spent(2 * time.Second)
	require.Zero(t, heir[0])
	require.InDelta(t, 900, heir[1]+heir[2], 20, "its heir has its part")
	begin()
	w.run(6*time.Second, true) // the cut ends
	begin()
	for _, n := range spent(2 * time.Second) {
		require.InDelta(t, 300, n, 30, "it has its part again")
	}
	require.Empty(t, w.faults)
}

// Somebody who asks all regions in the same millisecond gets the limit, and no more.
func TestRightsAgainstTheSameInstant(t *testing.T) {
	for _, line := range []string{"r fixed_window limit=600 window=60s", "r token_bucket limit=600 window=60s burst=600"} {
		w := calmRights(t, line, 0, 0, 0)
		passed := 0
		for range 700 {
			for _, r := range w.regions {
				if w.ask(r, "a", 1) {
					passed++
				}
			}
		}
		require.Equal(t, 600, passed)
		require.Empty(t, w.faults)
	}
}

// The parts of a limit are the limit, for any number of regions.
func TestFirstParts(t *testing.T) {
	for _, n := range []int64{1, 2, 3, 100, 6000} {
		l := limitOf(t, "r fixed_window limit=%d window=10s", n)
		for regions := 1; regions <= 7; regions++ {
			for _, key := range []string{"", "a", "weir:{192.0.2.1}:r:fw"} {
				sum := int64(0)
				for i := range regions {
					sum += Part(l, key, i, regions)
				}
				require.Equal(t, n, sum)
			}
		}
	}
}

func TestReturns(t *testing.T) {
	require.Equal(t, 6*time.Minute+16*time.Second, Returns(limitOf(t, "r fixed_window limit=10 window=60s")))
	require.Equal(t, time.Hour+76*time.Second, Returns(limitOf(t, "r fixed_window limit=10 window=1h")))
}

// What peers say is bounded by what makes sense.
func TestRightsRefuseWhatCannotBe(t *testing.T) {
	w := newRightsWorld(1, 2, quickRights, "r fixed_window limit=10 window=1s")
	r := w.regions[0]
	wall := w.wall(r)
	epoch := r.epochOf(w.limit, wall)
	for _, g := range []Transfer{
		{"a", epoch + 1, Grant{5, 0, 5}, Grant{}},
		{"a", epoch - 8e6, Grant{5, 0, 5}, Grant{}},
		{"a", epoch + 16e6, Grant{5, 0, 5}, Grant{}},
		{"a", epoch, Grant{-5, 0, 5}, Grant{}},
		{"a", epoch, Grant{5, -1, 5}, Grant{}},
		{"a", epoch, Grant{5, 0, -5}, Grant{}},
	} {
		r.Receive(&RightsMessage{Header: Header{From: 1, Incarnation: 1}, Grants: []Transfer{g}, Asks: []Ask{{"a", -1, -1, -1}}}, wall, w.net.now)
	}
	for _, from := range []int{-1, 0, 2} {
		r.Receive(&RightsMessage{Header: Header{From: from, Incarnation: 1}}, wall, w.net.now)
	}
	require.Empty(t, r.entries)
}
