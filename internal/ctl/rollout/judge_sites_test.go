package rollout

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/ctl/fleet"
)

// simulated is a site in virtual time.
type simulated struct {
	perLook float64 // requests
	base    float64 // the share that is limited on average
	rough   float64 // how far that wanders, as the deviation of its logarithm
	wander  float64 // where it is now
	breaks  float64 // the share of all others that a new rule refuses
}

// draw returns how many of n independent events with probability p happen.
func draw(r *rand.Rand, n, p float64) float64 {
	if n*p > 50 && n*(1-p) > 50 {
		return min(n, max(0, math.Round(n*p+r.NormFloat64()*math.Sqrt(n*p*(1-p)))))
	}
	if n*p > 50 {
		return n - draw(r, n, 1-p)
	}
	hits := -1.0 // of a Poisson process
	for at := 0.0; at <= n*p; hits++ {
		at += r.ExpFloat64()
	}
	return min(n, max(0, hits))
}

// next is what happens until the next look. mood is what all sites have in common.
func (s *simulated) next(r *rand.Rand, mood float64) fleet.Traffic {
	s.wander = 0.9*s.wander + math.Sqrt(1-0.9*0.9)*s.rough*r.NormFloat64()
	n := max(0, math.Round(s.perLook+r.NormFloat64()*math.Sqrt(s.perLook)))
	p := min(0.9, s.base*math.Exp(s.wander+mood))
	limited := draw(r, n, p)
	more := draw(r, n-limited, min(1, s.breaks/(1-p)))
	t := traffic(n, limited+more, 0)
	t.Rules = map[string]float64{"old": limited, "new": more}
	return t
}

// refuses tries a change on the first of some sites, together and each alone, with a look every
// five seconds, and reports whether the judge refused it. One rule breaks on the first site.
func refuses(r *rand.Rand, sites []*simulated, changed int, soak time.Duration, breaks float64) bool {
	mood, totals := 0.0, counts{}
	name := func(i int) Site { return Site{"eu-west", fmt.Sprintf("pop%d", i)} }
	look := func() {
		mood = 0.95*mood + 0.02*r.NormFloat64()
		now := counts{}
		for i, s := range sites {
			now[name(i)] = totals[name(i)].Plus(s.next(r, mood))
		}
		totals = now
	}
	before := []counts{{}}
	for range 12 {
		look()
		before = append(before, totals)
	}
	sites[0].breaks = breaks
	totals = counts{}
	has := map[Site]bool{}
	for i := range changed {
		has[name(i)] = true
	}
	at := func(s Site) bool { return has[s] }
	b := standard
	j := newJudge(&b, &Group{Name: "some", Soak: soak, Has: at, Judged: at, Past: true, Alone: changed > 1}, before)
	last := int(soak / (5 * time.Second))
	for i := range last + 1 {
		if why := j.look(time.Unix(int64(5*i), 0), totals); j.outside == outsideLooks || i == last && why != "" {
			return true
		}
		look()
	}
	return false
}

// someFleet returns sites that differ in load, in what they limit, and in how restless they are.
func someFleet(r *rand.Rand, n int) []*simulated {
	sites := make([]*simulated, n)
	for i := range sites {
		sites[i] = &simulated{perLook: 5 * math.Pow(1000, r.Float64()), base: []float64{0, 0.001, 0.02, 0.1, 0.3}[r.IntN(5)], rough: []float64{0, 0.1, 0.2}[r.IntN(3)]}
	}
	return sites
}

// Over many fleets whose sites differ in load, in what they limit and in how restless they are,
// a change of nothing is hardly ever refused, and a rule that begins to refuse 5% is noticed
// wherever there are enough requests to notice it by.
func TestJudgeOfManySites(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	type load struct {
		name                 string
		from, to             float64 // requests per second
		mostAlarms, mostMiss float64
	}
	const trials = 250
	for _, l := range []load{{"1 to 10 per second", 1, 10, 0.02, 0.6}, {"10 to 100 per second", 10, 100, 0.02, 0.05}, {"100 to 1,000 per second", 100, 1000, 0.02, 0.03}} {
		refused := func(breaks float64) bool {
			sites := someFleet(r, 2+r.IntN(11))
			sites[0].perLook = 5 * l.from * math.Pow(l.to/l.from, r.Float64())
			return refuses(r, sites, 1, 5*time.Minute, breaks)
		}
		alarms, misses := 0, 0
		for range trials {
			if refused(0) {
				alarms++
			}
			if !refused(0.05) {
				misses++
			}
		}
		t.Logf("%s: %.1f%% false alarms, %.1f%% missed", l.name, 100*float64(alarms)/trials, 100*float64(misses)/trials)
		require.LessOrEqual(t, float64(alarms)/trials, l.mostAlarms, l.name)
		require.LessOrEqual(t, float64(misses)/trials, l.mostMiss, l.name)
	}
	// A wave of many sites, each of which is judged alone, too.
	const waves = 20
	halts, misses := 0, 0
	for range waves {
		if refuses(r, someFleet(r, 60), 30, 10*time.Minute, 0) {
			halts++
		}
		sites := someFleet(r, 60)
		sites[0].perLook = 5 * 100
		if !refuses(r, sites, 30, 10*time.Minute, 0.25) {
			misses++
		}
	}
	t.Logf("waves of 30 sites: %d of %d halted by nothing, %d of %d missed 25%% refused at one site", halts, waves, misses, waves)
	require.LessOrEqual(t, halts, 1)
	require.LessOrEqual(t, misses, 1)
}
