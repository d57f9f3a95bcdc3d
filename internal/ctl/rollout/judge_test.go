package rollout

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/adminapi"
	"github.com/weir-edge/weir/internal/ctl/fleet"
)

var defaults = Bounds{Requests: 100, Limited: 0.05, Errors: 0.01, Fewer: 0.05, Slower: 2}

var ams, fra = Site{"eu-west", "ams1"}, Site{"eu-west", "fra1"}

// traffic is what happens at a site, as totals.
func traffic(requests, limited, errors float64) fleet.Traffic {
	return fleet.Traffic{Requests: requests, Limited: limited, Errors: errors}
}

// ofAms judges a canary on ams1.
func ofAms(b *Bounds, soak time.Duration, before map[Site]fleet.Traffic) *judge {
	at := func(s Site) bool { return s == ams }
	return newJudge(b, &Group{Name: "ams1", Soak: soak, Has: at, Judged: at, Past: true, Levels: true}, before)
}

func TestJudge(t *testing.T) {
	f := func(mine, others fleet.Traffic, want string) {
		t.Helper()
		j := ofAms(&defaults, time.Hour, map[Site]fleet.Traffic{})
		require.Equal(t, want, j.look(time.Unix(0, 0), map[Site]fleet.Traffic{ams: mine, fra: others}))
	}
	f(fleet.Traffic{}, fleet.Traffic{}, "")
	f(traffic(1000, 70, 0), traffic(1000, 30, 0), "")
	f(traffic(1000, 90, 0), traffic(1000, 30, 0), "ams1 limited 9.00 % of 1000 requests, the other sites 3.00 % of 1000; at most 5 points more is allowed")
	f(traffic(1000, 10, 0), traffic(1000, 300, 0), "")
	f(traffic(1000, 0, 30), traffic(1000, 0, 25), "")
	f(traffic(1000, 0, 30), traffic(1000, 0, 5), "ams1 answered 5xx to 3.00 % of 1000 requests, the other sites to 0.50 % of 1000; at most 1 points more is allowed")
	// With nothing to compare with, the bounds are absolute.
	f(traffic(1000, 40, 9), fleet.Traffic{}, "")
	f(traffic(1000, 60, 0), fleet.Traffic{}, "ams1 limited 6.00 % of 1000 requests, the other sites 0.00 % of 0; at most 5 points more is allowed")
	f(traffic(99, 99, 0), fleet.Traffic{}, "") // too few
}

// An hour of which the last ten minutes are bad does not pass on its average, nor does a
// site whose rules no longer limit what they did.
func TestJudgeWindows(t *testing.T) {
	f := func(before fleet.Traffic, limited func(minute int) float64, want string) {
		t.Helper()
		var why string
		var mine, others fleet.Traffic
		j := ofAms(&defaults, time.Hour, map[Site]fleet.Traffic{ams: before, fra: traffic(1000, 20, 0)})
		for at := time.Duration(0); at <= time.Hour && j.outside < outsideLooks; at += 5 * time.Second {
			why = j.look(time.Unix(0, 0).Add(at), map[Site]fleet.Traffic{ams: mine, fra: others})
			mine = mine.Plus(traffic(100, 100*limited(int(at.Minutes())), 0))
			others = others.Plus(traffic(500, 500*0.02, 0))
		}
		require.Equal(t, want, why)
		require.Less(t, len(j.subjects[0].late.samples), 2*windowSamples)
	}
	steady := func(int) float64 { return 0.02 }
	past := traffic(1000, 20, 0)
	f(past, steady, "")
	f(past, func(minute int) float64 { return map[bool]float64{true: 0.28, false: 0.02}[minute >= 50] },
		"in the last 6m0s, ams1 limited 7.42 % of 7200 requests, the other sites 2.00 % of 36000; at most 5 points more is allowed")
	f(traffic(1000, 200, 0), steady, "ams1 limited 2.00 % of 200 requests, and 20.00 % of 1000 before; at most 5 points less is allowed")
	f(traffic(99, 50, 0), steady, "")
}

// took counts requests: so many within 5 ms, and so many that took nearly a second.
func took(quick, slow float64) (t fleet.Traffic) {
	for i, bound := range adminapi.RequestBounds {
		if t.Took[i] = quick; bound >= 1 {
			t.Took[i] += slow
		}
	}
	t.Requests = quick + slow
	t.Took[len(t.Took)-1] = t.Requests
	return t
}

func TestSlower(t *testing.T) {
	b := Bounds{Requests: 100, Slower: 2}
	f := func(before, othersBefore, now, others fleet.Traffic, want string) {
		t.Helper()
		require.Equal(t, want, b.slower("ams1", sample{mine: before, others: othersBefore}, sample{mine: now, others: others}))
	}
	quick, none := took(1000, 0), fleet.Traffic{}
	f(quick, quick, took(990, 10), quick, "")
	f(quick, quick, took(950, 50), quick, "5.00 % of 1000 requests to ams1 took longer than 10ms; 99 % took at most 5ms before, and 2 times as long is allowed")
	f(quick, quick, took(950, 50), took(950, 50), "")  // slow everywhere
	f(took(950, 50), quick, took(950, 50), quick, "")  // always slow
	f(took(950, 50), quick, took(500, 500), quick, "") // no bucket tells
	f(took(99, 0), quick, took(80, 19), quick, "")     // too few
	f(took(100, 0), none, took(95, 5), none, "")       // chance
	f(took(100, 0), none, took(9700, 300), none, "")   // the past was too short to know
	f(none, quick, took(950, 50), quick, "5.00 % of 1000 requests to ams1 took longer than 10ms; 99 % took at most 5ms elsewhere, and 2 times as long is allowed")
	f(none, none, took(950, 50), none, "") // nothing to compare with
	b.Slower = 0
	f(quick, quick, took(0, 1000), quick, "")
}

// Sites whose latency does not change are not halted by chance, however quiet they are and
// however often they are looked at.
func TestSlowerIsNoChance(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	b := Bounds{Requests: 100, Slower: 2}
	halts, trials := 0, 2000
	for trial := range trials {
		slow := []float64{0.001, 0.009, 0.02, 0.2}[trial%4]
		perLook := []int{5, 50}[trial/4%2]
		draw := func(n int) fleet.Traffic {
			late := 0
			for range n {
				if random.Float64() < slow {
					late++
				}
			}
			return took(float64(n-late), float64(late))
		}
		before, now, outside := sample{mine: draw(max(100, 6*perLook))}, sample{}, 0
		for range 120 {
			now.mine = now.mine.Plus(draw(perLook))
			if outside++; !b.enough(&now.mine) || b.slower("ams1", before, now) == "" {
				outside = 0
			}
			if outside == outsideLooks {
				halts++
				break
			}
		}
	}
	require.LessOrEqual(t, halts, trials/1000)
}

// The progress of a soak shows what the group is judged by: a resumed one has no past.
func TestSoakIsCompared(t *testing.T) {
	f := func(want string, past fleet.Traffic) {
		t.Helper()
		j := ofAms(&defaults, time.Hour, map[Site]fleet.Traffic{ams: past})
		j.look(time.Unix(0, 0), map[Site]fleet.Traffic{ams: traffic(200, 50, 2), fra: traffic(100, 3, 0)})
		require.Equal(t, want, j.compared())
	}
	f("200 requests, limited 25.00 % (before 10.00 %), 5xx 1.00 % (before 0.00 %)", traffic(100, 10, 0))
	f("200 requests, limited 25.00 % (elsewhere 3.00 %), 5xx 1.00 % (elsewhere 0.00 %)", fleet.Traffic{})
}
