package shedder

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// fluid models an origin as a fluid: it answers the requests in flight within base, up to
// capacity. Its control holds the target exactly, except for critical requests.
type fluid struct {
	capacity, base float64 // requests per second, seconds
	demand         float64 // requests per second
	critical       float64 // of them, requests per second that probes admit
	inFlight       float64
	free           bool // only probes hold demand back
	shadow         bool // not even probes do
	e              Estimate
	now            time.Time
	refused        float64 // by probes
}

func newFluid() *fluid {
	return &fluid{capacity: 1000, base: 0.020, now: time.Unix(1_000_000_000, 0)}
}

const fluidTarget = 0.7

// run advances the time.
func (f *fluid) run(seconds float64) *fluid {
	const step = 0.001
	for range int(math.Round(seconds / Interval.Seconds())) {
		limit, probing := f.e.Limit()
		answered := 0.0
		for range int(Interval.Seconds() / step) {
			admitted := f.demand * step
			if high := f.e.High(fluidTarget); high > 0 && !f.free {
				admitted = min(admitted, max(0, fluidTarget*high-f.inFlight))
			}
			if passed := max(f.critical*step, min(admitted, float64(limit)-f.inFlight)); probing && passed < admitted {
				f.refused += admitted - passed
				admitted = passed
			}
			done := min(f.capacity*step, f.inFlight*step/f.base)
			f.inFlight += admitted - done
			answered += done
		}
		f.now = f.now.Add(Interval)
		f.e = f.e.After(&Observation{Now: f.now, For: Interval, InFlight: f.inFlight, Answered: answered, MayProbe: !f.shadow})
	}
	return f
}

// requireEstimate compares the estimate with the knee that an operator would choose.
func (f *fluid) requireEstimate(t *testing.T, rate, base float64) {
	t.Helper()
	require.True(t, f.e.Found)
	require.InEpsilon(t, rate, f.e.Rate, 0.05, "rate")
	require.InDelta(t, base, f.e.Base, 0.1*(base+headroom(rate)/rate), "base")
	require.InEpsilon(t, (rate*base+headroom(rate))/fluidTarget, f.e.High(fluidTarget), 0.1)
}

func (f *fluid) load(demand float64) *fluid {
	f.demand = demand
	return f
}

func TestEstimateFindsWhatHandsWouldChoose(t *testing.T) {
	f := newFluid().load(500).run(30)
	require.False(t, f.e.Found)
	require.Zero(t, f.e.High(fluidTarget), "nothing shows the limit")
	require.InDelta(t, 0.020, f.e.Base, 0.001)
	f.load(1500).run(5).requireEstimate(t, 1000, 0.020)
	require.InDelta(t, 80, f.e.High(fluidTarget), 3, "20 in flight at full rate, 36 for chance")
}

func TestEstimateFollowsTheOrigin(t *testing.T) {
	f := newFluid().load(500).run(10).load(1500).run(30)
	f.capacity, f.base = 500, 0.040
	f.run(20).requireEstimate(t, 500, 0.040)
	f.capacity, f.base = 2000, 0.010
	f.load(3000).run(70).requireEstimate(t, 2000, 0.010)
	f.capacity = 1000 // half of the workers are gone
	f.run(20).requireEstimate(t, 1000, 0.010)
}

// A node's knee is proportional to its part of the answers.
func TestEstimateDividesAmongNodes(t *testing.T) {
	f := newFluid().load(500).run(10).load(1500).run(30)
	f.capacity = 500 // another node takes the rest
	f.run(20).requireEstimate(t, 500, 0.020)
	f.capacity = 1000
	f.run(20).requireEstimate(t, 1000, 0.020)
}

// The work takes longer and nothing waits: a probe refuses a little, once.
func TestEstimateTellsSlowWorkFromAQueue(t *testing.T) {
	for _, demand := range []float64{100, 400, 800} {
		for _, before := range []float64{500, 1500} { // full rate unknown or known
			f := newFluid().load(before).run(40).load(demand).run(20)
			f.refused = 0
			f.base = 0.120
			f.run(120)
			require.InEpsilon(t, 0.120, f.e.Base, 0.15, "%v after %v", demand, before)
			require.InEpsilon(t, demand*0.120, f.inFlight, 0.05, "%v after %v: all are served", demand, before)
			require.Less(t, f.refused, 1.0*demand, "%v after %v", demand, before)
		}
	}
}

// An initial queue looks like work. Each probe drains below the level that it explains.
func TestEstimateRecoversFromAStandingQueue(t *testing.T) {
	f := newFluid().load(1000)
	f.inFlight = 300
	f.run(1.5) // until its first probe
	require.InEpsilon(t, 0.3, f.e.Base, 0.05)
	f.load(1300).run(60).requireEstimate(t, 1000, 0.020)
}

// An hour of overload changes nothing: the queue does not become the base.
func TestEstimateDoesNotDrift(t *testing.T) {
	f := newFluid().load(500).run(10).load(1500)
	for range 60 {
		f.run(60).requireEstimate(t, 1000, 0.020)
	}
	require.Less(t, f.e.Probes, uint64(65), "a probe a minute")
	require.Less(t, f.refused/(3600*1500), 0.01)
}

// Requests that time out after a constant time are not answers.
func TestEstimateIgnoresTimeouts(t *testing.T) {
	f := newFluid().load(500).run(10).load(1500).run(30)
	before := f.e
	for range 6000 {
		f.now = f.now.Add(Interval)
		f.e = f.e.After(&Observation{Now: f.now, For: Interval, InFlight: 56, Answered: 0, MayProbe: true})
	}
	require.InEpsilon(t, before.High(fluidTarget), f.e.High(fluidTarget), 0.35, "no more than until the next probe")
	f.run(20).requireEstimate(t, 1000, 0.020)
}

func TestEstimateOutlastsIdleHours(t *testing.T) {
	f := newFluid().load(500).run(10).load(1500).run(30)
	high := f.e.High(fluidTarget)
	for _, demand := range []float64{0, 1, 4, 20} {
		f.load(demand).run(3600)
		require.InEpsilon(t, high, f.e.High(fluidTarget), 0.05, "%v per second", demand)
	}
	f.refused = 0
	f.load(900).run(60)
	require.Zero(t, f.refused, "it fits")
	f.load(1500).run(5).requireEstimate(t, 1000, 0.020)
}

func TestBurstsMoveLittle(t *testing.T) {
	f := newFluid().load(500).run(10).load(1500).run(30)
	high := f.e.High(fluidTarget)
	for range 200 {
		f.load(1300).run(1).load(600).run(4)
		require.InEpsilon(t, high, f.e.High(fluidTarget), 0.15)
	}
}

// If probes may refuse nothing, the estimate relies on calm periods.
func TestEstimateInShadow(t *testing.T) {
	f := newFluid().load(500).run(20).load(1500)
	f.shadow = true
	f.run(5)
	require.Zero(t, f.refused)
	require.Zero(t, f.e.Probes)
	f.requireEstimate(t, 1000, 0.020)
}

func TestProbesSpareTheFirstClass(t *testing.T) {
	f := newFluid().load(500).run(10).load(1500)
	f.critical = 900 // nearly all: the load in flight falls no further than they need
	f.run(30).requireEstimate(t, 1000, 0.020)
}

// A process that stalls during a probe sees a queue that is not the origin's.
func TestAStallInAProbeRaisesNoBase(t *testing.T) {
	f := newFluid().load(500).run(10).load(1500)
	for range 1000 {
		f.run(Interval.Seconds())
		if f.e.probe.drained {
			break
		}
	}
	require.True(t, f.e.probe.drained)
	trip := f.e.RoundTrip()
	f.now = f.now.Add(longestStep)
	f.e = f.e.After(&Observation{Now: f.now, For: longestStep, InFlight: 400, Answered: 20, MayProbe: true})
	require.LessOrEqual(t, f.e.Base, lag*trip)
	f.run(130).requireEstimate(t, 1000, 0.020)
}

// Nodes that share an origin must drain it together.
func TestProbesBeginByTheClock(t *testing.T) {
	f := newFluid().load(500).run(10).load(1500)
	begun := 0
	for range 1800 {
		_, before := f.e.Limit()
		f.run(Interval.Seconds())
		if _, probing := f.e.Limit(); probing && !before {
			require.Less(t, f.now.UnixNano()%int64(probeSlot), int64(Interval))
			begun++
		}
	}
	require.Greater(t, begun, 2)
}

func TestEstimateStaysFinite(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		e, now := Estimate{}, time.Unix(1_000_000_000, 0)
		for range rapid.IntRange(1, 300).Draw(t, "samples") {
			dt := time.Duration(rapid.Int64Range(0, int64(longestStep)).Draw(t, "for"))
			now = now.Add(dt)
			e = e.After(&Observation{
				Now: now, For: dt, InFlight: float64(rapid.IntRange(0, 2000).Draw(t, "in flight")),
				Answered: float64(rapid.IntRange(0, 2000).Draw(t, "answered")), MayProbe: rapid.Bool().Draw(t, "probe"),
			})
			for _, v := range []float64{e.Base, e.Rate, e.High(fluidTarget), e.RoundTrip()} {
				require.False(t, v < 0 || math.IsNaN(v) || math.IsInf(v, 0), "%+v", e)
			}
			if limit, probing := e.Limit(); probing {
				require.Positive(t, limit)
			}
		}
	})
}

// A new node with slow work is alone: one attempt shows that.
func TestANewcomerThatIsAloneSearchesOnce(t *testing.T) {
	f := newFluid()
	f.base = 0.100
	f.load(500).run(30)
	require.Equal(t, search{tries: 1, over: true}, f.e.search)
	require.InEpsilon(t, 0.100, f.e.Base, 0.02)
	require.False(t, f.e.Found)
	require.Zero(t, f.e.Probes)
	require.Positive(t, f.refused)
	require.Less(t, f.refused, 0.6*500, "half a second's requests")
}

// A node that starts with a queue has all of it, and searches until others have probed.
func TestANewcomerSearchesInAQueue(t *testing.T) {
	f := newFluid().load(1500)
	f.inFlight = 300
	f.run(12)
	require.True(t, f.e.search.over)
	require.Greater(t, f.e.search.tries, 1)
	require.LessOrEqual(t, f.e.search.tries, searchTries)
	f.run(60).requireEstimate(t, 1000, 0.020)
}

// A node that met no load while it was new does not search later.
func TestOnlyNewcomersSearch(t *testing.T) {
	f := newFluid().load(100).run(20).load(1500).run(60)
	require.Zero(t, f.e.search)
}
