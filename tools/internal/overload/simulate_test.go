package overload

import (
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

// steady is an origin that does not slow down.
func steady(time.Duration) float64 { return 1 }

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
			run := simulate(s.Plan, Contender{"pi", settings}, 1, workers, steady)
			span := s.Plan.Span(1)
			require.GreaterOrEqual(t, Goodput(run, span)*Capacity/capacity, goodput, "%v at %vx", capacity, load)
			require.GreaterOrEqual(t, Success(run, span, Critical), 0.995)
			require.Zero(t, Inversions(run, span))
			require.LessOrEqual(t, Onset(run, span), time.Second)
			require.LessOrEqual(t, Recovery(run, Span{span.To, s.Plan.Length()}), 10*time.Second)
		}
	}
	f(100, 2, 16, 24, 0.9)
	f(1000, 20, 80, 120, 0.97)
	f(5000, 100, 300, 500, 0.98)
}

// An origin that is temporarily five times as slow, and one that hangs.
func TestOriginSlowsDownAndComesBack(t *testing.T) {
	for _, times := range []float64{5, 500} {
		slow := Span{20 * time.Second, 30 * time.Second}
		run := simulate(Plan{{80 * time.Second, Mix(2), 0}}, Contender{"pi", Settings(shedder.LawPI)}, 1, Workers, func(now time.Duration) float64 {
			if slow.has(now) {
				return times
			}
			return 1
		})
		require.Zero(t, Inversions(run, Span{0, 80 * time.Second}))
		require.GreaterOrEqual(t, Goodput(run, Span{10 * time.Second, 20 * time.Second}), 0.95)
		require.GreaterOrEqual(t, Goodput(run, Span{60 * time.Second, 80 * time.Second}), 0.95, "it recovers from %v times slower", times)
	}
}
