package overload

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/pkg/shedder"
)

func TestSimulateRepeats(t *testing.T) {
	plan := Overload(5).Plan.Scale(true)
	c := Contender{"pi", Settings(shedder.LawPI)}
	require.Equal(t, Simulate(plan, c, 7), Simulate(plan, c, 7))
	require.NotEqual(t, Simulate(plan, c, 7), Simulate(plan, c, 8))
}

func TestSimulateCountsEveryRequest(t *testing.T) {
	plan := Plan{{10 * time.Second, Mix(3), 0}}
	for _, c := range Contenders() {
		require.Len(t, Simulate(plan, c, 1).Attempts, len(Schedule(plan, 1)))
	}
}

// Two percent too much, for as long as it lasts: caps alone would refuse whoever comes at the
// wrong moment, and tell of a level of 0.
func TestSlightOverloadEngagesTheLevel(t *testing.T) {
	for _, load := range slight {
		for seed := uint64(1); seed <= 2; seed++ {
			plan := Plan{{300 * time.Second, Mix(load), 0}}
			run := Simulate(plan, Contender{"pi", Settings(shedder.LawPI)}, seed)
			first := slices.IndexFunc(run.Samples, func(s Sample) bool { return s.Level > 0 })
			require.Positive(t, first)
			require.Less(t, run.Samples[first].At, time.Minute, "%vx, seed %d", load, seed)
			settled := Span{60 * time.Second, 300 * time.Second}
			require.Greater(t, LevelShare(run, settled), 0.4, "%vx, seed %d", load, seed)
			require.GreaterOrEqual(t, Goodput(run, settled), 0.98)
			shares := ShedShares(run, settled)
			require.Zero(t, shares[Critical])
			require.Zero(t, shares[Write])
			require.Less(t, shares[Read], 0.02)
			require.Greater(t, shares[Test], 0.08)
		}
	}
}

// A site that is not too busy in the mean leaves bursts to the caps, also those that caps
// cut again and again.
func TestBurstsDoNotEngageTheLevel(t *testing.T) {
	for _, bursts := range []Plan{
		{{5 * time.Second, Mix(1.05), 0}, {5 * time.Second, Mix(0.5), 0}},
		{{2 * time.Second, Mix(1.1), 0}, {2 * time.Second, Mix(0.7), 0}},
		{{time.Second, Mix(1.3), 0}, {4 * time.Second, Mix(0.6), 0}},
	} {
		plan := Plan{{10 * time.Second, Mix(0.5), 0}}
		for plan.Length() < 300*time.Second {
			plan = append(plan, bursts...)
		}
		for seed := uint64(1); seed <= 2; seed++ {
			run := Simulate(plan, Contender{"pi", Settings(shedder.LawPI)}, seed)
			require.Positive(t, Sheds(run, Span{0, plan.Length()}), "caps refuse")
			require.Zero(t, LevelSheds(run, Span{0, plan.Length()}), "%v, seed %d", bursts, seed)
		}
	}
}

// At no load does the level run up and down: whatever moves it is chance.
func TestTheLevelIsStable(t *testing.T) {
	for _, load := range []float64{0.5, 0.8, 0.9, 1.02, 1.05, 1.1, 1.3, 2, 3, 5} {
		plan := Plan{{20 * time.Second, Mix(0.5), 0}, {160 * time.Second, Mix(load), 0}, {20 * time.Second, Mix(0.5), 0}}
		run := Simulate(plan, Contender{"pi", Settings(shedder.LawPI)}, 1)
		settled := Span{80 * time.Second, 180 * time.Second}
		require.Less(t, Variation(run, settled), 0.05, "%vx", load)
		require.GreaterOrEqual(t, Goodput(run, settled), 0.98*min(load, 1), "%vx", load)
		// In requests, as the level is in classes of very different size.
		lowest, highest := math.Inf(1), 0.0
		for _, s := range run.Samples {
			if !settled.has(s.At) {
				continue
			}
			shed := 0.0
			for class, p := range s.Probability {
				shed += p * Mix(load)[class]
			}
			lowest, highest = min(lowest, shed), max(highest, shed)
		}
		require.LessOrEqual(t, max(0, highest-lowest), 0.05*max(load, 3), "%vx: of capacity", load)
		require.LessOrEqual(t, Recovery(run, plan.Span(2)), 3*time.Second, "%vx", load)
	}
}

// The law assumes no rate: origins of other sizes need only other knees and caps.
func TestOtherOrigins(t *testing.T) {
	f := func(capacity float64, workers int, knee float64, caps int64, goodput float64) {
		t.Helper()
		settings := Settings(shedder.LawPI)
		settings.Signals = map[string]shedder.Knees{shedder.SignalInFlight: {High: knee}}
		for i := range settings.Classes {
			settings.Classes[i].MaxInFlight = caps - int64(i)*caps/12
		}
		for _, load := range overloads {
			s := Overload(load)
			for i := range s.Plan {
				for class := range s.Plan[i].Load {
					s.Plan[i].Load[class] *= capacity / Capacity
				}
			}
			span := s.Plan.Span(1)
			seeds := max(1, uint64(1000/capacity)) // a small origin gets few critical requests
			var critical float64
			for seed := uint64(1); seed <= seeds; seed++ {
				run := simulate(s.Plan, Contender{"pi", settings}, seed, workers, nil)
				require.GreaterOrEqual(t, Goodput(run, span)*Capacity/capacity, goodput, "%v at %vx", capacity, load)
				critical += Success(run, span, Critical) / float64(seeds)
				require.Zero(t, Inversions(run, span))
				require.LessOrEqual(t, Onset(run, span), time.Second)
				require.LessOrEqual(t, Recovery(run, Span{span.To, s.Plan.Length()}), 10*time.Second)
			}
			require.GreaterOrEqual(t, critical, 0.995, "%v at %vx", capacity, load)
		}
	}
	f(100, 2, 16, 24, 0.9)
	f(1000, 20, 80, 120, 0.97)
	f(5000, 100, 300, 500, 0.98)
}

// An origin that is temporarily five times as slow, and one that hangs.
func TestOriginSlowsDownAndComesBack(t *testing.T) {
	for _, times := range []float64{5, 500} {
		run := Simulate(Plan{{80 * time.Second, Mix(2), 0}}, Contender{"pi", Settings(shedder.LawPI)}, 1,
			Change{At: 20 * time.Second, Slowness: times}, Change{At: 30 * time.Second, Slowness: 1})
		require.Zero(t, Inversions(run, Span{0, 80 * time.Second}))
		require.GreaterOrEqual(t, Goodput(run, Span{10 * time.Second, 20 * time.Second}), 0.95)
		require.GreaterOrEqual(t, Goodput(run, Span{60 * time.Second, 80 * time.Second}), 0.95, "it recovers from %v times slower", times)
	}
}
