package rollout

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/adminapi"
	"github.com/weir-edge/weir/internal/ctl/fleet"
)

// standard are the bounds without flags.
var standard = Bounds{Requests: 100, Limited: 0.02, Errors: 0.01, Fewer: 0.05, Slower: 2}

var ams, fra, iad, sin = Site{"eu-west", "ams1"}, Site{"eu-west", "fra1"}, Site{"us-east", "iad1"}, Site{"ap-south", "sin1"}

// traffic is what happens at a site, as totals.
func traffic(requests, limited, errors float64) fleet.Traffic {
	return fleet.Traffic{Requests: requests, Limited: limited, Errors: errors}
}

// ofAms judges a canary on ams1.
func ofAms(b *Bounds, soak time.Duration, before ...counts) *judge {
	at := func(s Site) bool { return s == ams }
	return newJudge(b, &Group{Name: "ams1", Soak: soak, Has: at, Judged: at, Past: true}, before)
}

func TestJudge(t *testing.T) {
	f := func(before, now counts, want string) {
		t.Helper()
		j := ofAms(&standard, time.Hour, counts{}, before)
		j.look(time.Unix(0, 0), counts{})
		require.Equal(t, want, j.look(time.Unix(5, 0), now))
	}
	f(counts{}, counts{}, "")
	// Sites differ, and stay as they are.
	f(counts{ams: traffic(1000, 300, 0), fra: traffic(1000, 20, 0)}, counts{ams: traffic(5000, 1500, 0), fra: traffic(5000, 100, 0)}, "")
	// A site that limited nothing now limits as much as the others always did.
	f(counts{ams: traffic(1000, 0, 0), fra: traffic(1000, 245, 0)}, counts{ams: traffic(5000, 1225, 0), fra: traffic(5000, 1225, 0)},
		"ams1 limited 24.50% of 5000 requests, and 0.00% of 1000 before; elsewhere the share changed by +0.00 points; --max-limited-increase allows 2 points")
	f(counts{ams: traffic(1000, 0, 0)}, counts{ams: traffic(5000, 0, 250)},
		"ams1 answered 5xx to 5.00% of 5000 requests, and 0.00% of 1000 before; --max-5xx-increase allows 1 points")
	f(counts{ams: traffic(1000, 300, 0)}, counts{ams: traffic(5000, 500, 0)},
		"ams1 limited 10.00% of 5000 requests, and 30.00% of 1000 before; --max-limited-decrease allows 5 points")
	// What happens everywhere is not the change's doing: an attack begins, or ends.
	calm, attacked := traffic(5000, 100, 0), traffic(5000, 1500, 0)
	f(counts{ams: calm, fra: calm}, counts{ams: attacked, fra: attacked}, "")
	f(counts{ams: attacked, fra: attacked}, counts{ams: calm, fra: calm}, "")
	// What happens at one of several others is that site's own affair.
	f(counts{ams: calm, fra: calm, iad: calm, sin: calm}, counts{ams: attacked, fra: attacked, iad: calm, sin: calm},
		"ams1 limited 30.00% of 5000 requests, and 2.00% of 5000 before; elsewhere the share changed by +0.00 points; --max-limited-increase allows 2 points")
	f(counts{ams: calm, fra: attacked, iad: calm}, counts{ams: calm, fra: calm, iad: calm}, "")
	f(counts{ams: calm, fra: attacked, iad: attacked}, counts{ams: calm, fra: calm, iad: calm}, "") // two are too few to accuse it
	f(counts{ams: calm, fra: attacked}, counts{ams: calm, fra: calm}, "")                           // the only other one
	// An attack ends everywhere, but the site goes on refusing.
	lhr, nrt := Site{"eu-west", "lhr1"}, Site{"ap-south", "nrt1"}
	f(counts{ams: attacked, fra: attacked, iad: attacked, sin: attacked, lhr: calm, nrt: attacked}, counts{ams: attacked, fra: calm, iad: calm, sin: calm, lhr: calm, nrt: calm},
		"ams1 limited 30.00% of 5000 requests, and 30.00% of 5000 before; elsewhere the share changed by -28.00 points; --max-limited-increase allows 2 points")
	// The rule is named, also if another one hides it in the sum.
	rules := func(requests, old, new float64) fleet.Traffic {
		t := traffic(requests, old+new, 0)
		t.Rules = map[string]float64{"old": old, "new": new}
		return t
	}
	f(counts{ams: rules(5000, 300, 0), fra: calm}, counts{ams: rules(5000, 300, 900), fra: calm},
		"ams1: rule new limited 18.00% of 5000 requests, and 0.00% of 5000 before; elsewhere the share changed by +0.00 points; --max-limited-increase allows 2 points")
	f(counts{ams: rules(5000, 250, 0)}, counts{ams: rules(5000, 0, 250)},
		"ams1: rule new limited 5.00% of 5000 requests, and 0.00% of 5000 before; --max-limited-increase allows 2 points")
	f(counts{ams: rules(5000, 900, 0)}, counts{ams: rules(5000, 0, 0)},
		"ams1: rule old limited 0.00% of 5000 requests, and 18.00% of 5000 before; --max-limited-decrease allows 5 points")
	// Chance explains much of a short past, but not everything.
	f(counts{ams: traffic(20, 0, 0)}, counts{ams: traffic(1000, 50, 0)}, "")
	f(counts{ams: traffic(20, 0, 0)}, counts{ams: traffic(1000, 600, 0)}, "ams1 limited 60.00% of 1000 requests, and 0.00% of 20 before; --max-limited-increase allows 2 points")
	// Without a past, only the others are left to compare with.
	f(counts{fra: calm}, counts{ams: traffic(1000, 60, 0), fra: calm},
		"ams1 limited 6.00% of 1000 requests, the other sites 2.00% of 5000, and what it did before is unknown; --max-limited-increase allows 2 points more")
	f(counts{}, counts{ams: traffic(1000, 30, 0)},
		"ams1 limited 3.00% of 1000 requests, the other sites 0.00% of 0, and what it did before is unknown; --max-limited-increase allows 2 points more")
	f(counts{ams: calm}, counts{ams: traffic(99, 99, 0)}, "") // too few
}

// The end of a soak is judged apart, also after a day.
func TestJudgeWindows(t *testing.T) {
	f := func(soak time.Duration, limited func(at time.Duration) float64, from, to time.Duration) {
		t.Helper()
		var mine, others fleet.Traffic
		j := ofAms(&standard, soak, counts{}, counts{ams: traffic(1000, 20, 0), fra: traffic(1000, 20, 0)})
		at := time.Duration(0)
		for ; at <= soak && j.outside < outsideLooks; at += 5 * time.Second {
			why := j.look(time.Unix(0, 0).Add(at), counts{ams: mine, fra: others})
			if j.outside == outsideLooks {
				require.Contains(t, why, "in the last ")
			}
			mine = mine.Plus(traffic(100, 100*limited(at), 0))
			others = others.Plus(traffic(500, 500*0.02, 0))
			require.LessOrEqual(t, len(j.moments.list), mostMoments)
		}
		require.True(t, at >= from && at <= to, "%s", at)
	}
	bad := func(begins time.Duration) func(time.Duration) float64 {
		return func(at time.Duration) float64 { return map[bool]float64{true: 0.28, false: 0.02}[at >= begins] }
	}
	f(time.Hour, bad(2*time.Hour), time.Hour, 2*time.Hour)
	f(time.Hour, bad(50*time.Minute), 50*time.Minute, 54*time.Minute)
	f(24*time.Hour, bad(23*time.Hour), 23*time.Hour, 23*time.Hour+8*time.Minute)
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
	j := &judge{Bounds: &Bounds{Requests: 100, Slower: 2}}
	f := func(before, othersBefore, now, others fleet.Traffic, want string) {
		t.Helper()
		require.Equal(t, want, j.slower(&subject{name: "ams1", before: before}, &now, &elsewhere{before: othersBefore, now: others}))
	}
	quick, none := took(1000, 0), fleet.Traffic{}
	f(quick, quick, took(990, 10), quick, "")
	f(quick, quick, took(950, 50), quick, "5.00% of 1000 requests to ams1 took longer than 10ms; 99% took at most 5ms before, and --max-p99-factor allows 2 times as long")
	f(quick, quick, took(950, 50), took(950, 50), "")  // slow everywhere
	f(took(950, 50), quick, took(950, 50), quick, "")  // always slow
	f(took(950, 50), quick, took(500, 500), quick, "") // no bucket tells
	f(took(99, 0), quick, took(80, 19), quick, "")     // too few
	f(took(100, 0), none, took(95, 5), none, "")       // chance
	f(took(100, 0), none, took(9700, 300), none, "")   // the past was too short to know
	f(none, quick, took(950, 50), quick, "5.00% of 1000 requests to ams1 took longer than 10ms; 99% took at most 5ms elsewhere, and --max-p99-factor allows 2 times as long")
	f(none, none, took(950, 50), none, "") // nothing to compare with
	j.Slower = 0
	f(quick, quick, took(0, 1000), quick, "")
}

// Sites whose latency does not change are not halted by chance, however quiet they are and
// however often they are looked at.
func TestSlowerIsNoChance(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	j := &judge{Bounds: &Bounds{Requests: 100, Slower: 2}}
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
		x, now, outside := &subject{before: draw(max(100, 6*perLook))}, fleet.Traffic{}, 0
		for range 120 {
			now = now.Plus(draw(perLook))
			if outside++; !j.enough(&now) || j.slower(x, &now, &elsewhere{}) == "" {
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

// Rules that a change enforces are named in advance if they would limit too many.
func TestForetell(t *testing.T) {
	var warned []string
	w := &Watch{Bounds: standard, Warn: func(format string, args ...any) { warned = append(warned, fmt.Sprintf(format, args...)) }}
	shadow := fleet.Traffic{Requests: 200, Shadow: map[string]float64{"new": 40, "rare": 6, "still": 50}}
	w.before = map[Site]*fleet.Tally{ams: {Total: shadow}, fra: {Total: shadow}, iad: {Total: fleet.Traffic{Requests: leastPast - 1, Shadow: map[string]float64{"new": leastPast - 1}}}}
	w.Foretell(func(at Site) bool { return at != fra }, func(rule string) bool { return rule != "still" })
	require.Equal(t, []string{"ams1 in eu-west: rule new, which is in shadow mode now, would have limited at least 20.00% of 200 requests; if it refuses as many when it is enforced, this ends: --max-limited-increase allows 2 points"}, warned)
}

// The progress of a soak shows what the group is judged by: a resumed one has no past.
func TestSoakIsCompared(t *testing.T) {
	f := func(want string, past fleet.Traffic) {
		t.Helper()
		j := ofAms(&standard, time.Hour, counts{ams: past})
		now := counts{ams: traffic(200, 50, 2), fra: traffic(100, 3, 0)}
		j.look(time.Unix(0, 0), now)
		require.Equal(t, want, j.compared(now))
	}
	f("200 requests, limited 25.00% (before 10.00%), 5xx 1.00% (before 0.00%)", traffic(100, 10, 0))
	f("200 requests, limited 25.00% (elsewhere 3.00%), 5xx 1.00% (elsewhere 0.00%)", fleet.Traffic{})
	// A rule that may end the change is named before it does.
	ruled := func(total, one, two float64) fleet.Traffic {
		t := traffic(total, one+two, 0)
		t.Rules = map[string]float64{"one": one, "two": two}
		return t
	}
	j := ofAms(&standard, time.Hour, counts{ams: ruled(10_000, 100, 1000)})
	now := counts{ams: ruled(10_000, 350, 850)}
	j.look(time.Unix(0, 0), now)
	require.Equal(t, "rule one nears its bound: limited 3.50% (before 1.00%; --max-limited-increase allows 2 points); 10000 requests, limited 12.00% (before 11.00%), 5xx 0.00% (before 0.00%)", j.compared(now))
}
