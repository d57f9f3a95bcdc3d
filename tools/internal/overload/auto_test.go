package overload

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/pkg/shedder"
)

// An estimated knee next to one chosen by hand for exactly this origin, while things change.
func TestAutoNextToHands(t *testing.T) {
	const s = time.Second
	f := func(name string, plan Plan, changes []Change, capacity float64, from time.Duration, worse float64) {
		t.Helper()
		span := Span{from, plan.Length()}
		const seeds = 4
		var gap float64 // a mean: of one seed it varies by as much as is allowed
		for seed := uint64(1); seed <= seeds; seed++ {
			hands := Simulate(plan, Contender{"weir", Settings(shedder.LawPI)}, seed, changes...)
			auto := Simulate(plan, Contender{"auto", Auto()}, seed, changes...)
			require.GreaterOrEqual(t, Goodput(auto, span)/capacity, 0.97, "%s, seed %d", name, seed)
			gap += (Goodput(hands, span) - Goodput(auto, span)) / capacity / seeds
			require.GreaterOrEqual(t, Success(auto, span, Critical), 0.999, "%s, seed %d", name, seed)
			require.LessOrEqual(t, P99(auto, span).Seconds(), worse*P99(hands, span).Seconds(), "%s, seed %d", name, seed)
			require.GreaterOrEqual(t, LevelShare(auto, span), 0.85, "%s, seed %d", name, seed)
			if len(changes) == 0 || changes[0].Nodes == 0 { // nodes do not compare what they shed
				require.Zero(t, Inversions(auto, span), "%s, seed %d", name, seed)
			}
		}
		require.LessOrEqual(t, gap, 0.015, name)
	}
	over := func(load float64) Plan { return Plan{{10 * s, Mix(0.5), 0}, {110 * s, Mix(load), 0}} }
	f("steady", over(1.5), nil, 1, 20*s, 1.1)
	f("half as fast", over(1.5), []Change{{At: 40 * s, Slowness: 2}}, 0.5, 50*s, 1)
	f("twice as fast", over(3), []Change{{At: 40 * s, Slowness: 0.5}}, 2, 55*s, 1.5)
	// Several nodes need more headroom together than one.
	f("a node joins", over(1.5), []Change{{Nodes: 2}, {At: 40 * s, Nodes: 3}}, 1, 50*s, 1.5)
	f("a node leaves", over(1.5), []Change{{Nodes: 3}, {At: 40 * s, Nodes: 2}}, 1, 50*s, 1.7)
}

// The work takes 100 ms longer, and the origin bears as much as before: nothing has to be
// shed. A knee by hand refuses a third for as long as that lasts.
func TestAutoKnowsSlowWorkFromAQueue(t *testing.T) {
	plan := Plan{{20 * time.Second, Mix(0.8), 0}, {60 * time.Second, Mix(0.8), 0}}
	slower := Change{At: 20 * time.Second, Delay: 100 * time.Millisecond}
	hands := Simulate(plan, Contender{"weir", Settings(shedder.LawPI)}, 1, slower)
	auto := Simulate(plan, Contender{"auto", Auto()}, 1, slower)
	settled := Span{30 * time.Second, 80 * time.Second}
	require.Greater(t, Sheds(hands, settled), 10_000)
	require.Zero(t, Sheds(auto, settled))
	require.Less(t, Sheds(auto, Span{0, 80 * time.Second}), 1500, "before the first probe and in it")
	require.Equal(t, 1.0, Success(auto, Span{0, 80 * time.Second}, Critical))
}

// Below capacity and in bursts that hands would serve, nothing is shed.
func TestAutoShedsNothingInCalm(t *testing.T) {
	for seed := uint64(1); seed <= 4; seed++ {
		run := Simulate(calm(), Contender{"auto", Auto()}, seed)
		require.Zero(t, Sheds(run, Span{0, calm().Length()}), "seed %d", seed)
		// Also by a node that knows the knee.
		plan := append(Plan{{10 * time.Second, Mix(0.5), 0}, {20 * time.Second, Mix(2), 0}, {20 * time.Second, Mix(0.3), 0}}, calm()...)
		run = Simulate(plan, Contender{"auto", Auto()}, seed)
		require.Zero(t, Sheds(run, Span{35 * time.Second, plan.Length()}), "seed %d", seed)
	}
}

// Nothing is known of other origins either.
func TestAutoFindsOtherOrigins(t *testing.T) {
	f := func(workers int, service time.Duration, goodput float64) {
		t.Helper()
		capacity := float64(workers) / service.Seconds() / Capacity
		plan := Plan{{10 * time.Second, Mix(0.5), 0}, {70 * time.Second, Mix(2), 0}}
		for i := range plan {
			for class := range plan[i].Load {
				plan[i].Load[class] *= capacity
			}
		}
		run := simulate(plan, Contender{"auto", Auto()}, 1, workers, []Change{{Slowness: service.Seconds() / MeanService.Seconds()}})
		require.GreaterOrEqual(t, Goodput(run, Span{20 * time.Second, 80 * time.Second})/capacity, goodput, "%d workers, %v", workers, service)
	}
	f(2, 20*time.Millisecond, 0.9)
	f(100, 20*time.Millisecond, 0.98)
	f(10, 5*time.Millisecond, 0.98)
	f(100, 100*time.Millisecond, 0.92) // the law is slow here: 0.96 by hand
	f(1, time.Millisecond, 0.97)
}
