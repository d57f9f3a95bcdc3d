package overload

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func total(load []float64) float64 {
	sum := 0.0
	for _, part := range load {
		sum += part
	}
	return sum
}

func TestMixAddsUpAndKeepsCriticalDemandWithinCapacity(t *testing.T) {
	for _, load := range []float64{0.1, 0.4, 0.5, 0.9, 1, 2, 10} {
		mix := Mix(load)
		require.Len(t, mix, Classes)
		require.InDelta(t, load, total(mix), 1e-9)
		require.LessOrEqual(t, mix[Critical], 0.2)
		if load >= 0.4 {
			require.Equal(t, 0.2, mix[Critical])
		}
	}
	require.InDeltaSlice(t, []float64{0.2, 0.36, 1.08, 0.36}, Mix(2), 1e-9)
}

func TestScenariosAreThoseOfTheTable(t *testing.T) {
	names := func(all []Scenario) (names []string) {
		for _, s := range all {
			names = append(names, s.Name)
		}
		return names
	}
	for _, short := range []bool{false, true} {
		all := Scenarios(short)
		want := []string{Reference, "2x", "5x", "10x", Calm, Latch, Storm}
		if !short {
			want = append(want, "1.5x", Slower, Faster, Joins, Leaves, Longer, "1.02x", "1.05x", "1.1x")
		}
		require.Equal(t, want, names(all))
		for _, s := range all {
			step := s.Plan.Span(s.Step)
			if s.Name != Calm {
				require.InDelta(t, s.Load, total(s.Plan[s.Step].Load), 1e-9, s.Name)
				require.GreaterOrEqual(t, step.To-step.From, Settled+10*time.Second, s.Name)
			}
			if !short && slices.Contains(overloads, s.Load) {
				require.Equal(t, Span{10 * time.Second, 70 * time.Second}, step)
				require.Equal(t, 85*time.Second, s.Plan.Length())
			}
		}
	}
	for _, step := range calm() {
		require.LessOrEqual(t, total(step.Load), 0.9)
	}
	require.InDelta(t, 60, Plan(calm()).Length().Seconds(), 1)
}

func TestScaleShortensOnlyLongSteps(t *testing.T) {
	p := Plan{{time.Second, Mix(1), 2}, {time.Minute, Mix(2), 0}}
	require.Equal(t, p, p.Scale(false))
	short := p.Scale(true)
	require.Equal(t, Plan{{time.Second, Mix(1), 2}, {20 * time.Second, Mix(2), 0}}, short)
	require.Equal(t, time.Minute, p[1].For, "the plan itself is unchanged")
}

func TestScheduleIsPoissonAndRepeatable(t *testing.T) {
	plan := Plan{{20 * time.Second, Mix(2), 3}, {10 * time.Second, []float64{0, 0, 1, 0}, 0}}
	all := Schedule(plan, 7)
	require.Equal(t, all, Schedule(plan, 7))
	require.NotEqual(t, all[0], Schedule(plan, 8)[0])
	require.True(t, slices.IsSortedFunc(all, func(a, b Arrival) int { return int(a.Due - b.Due) }))

	var counts [Classes]float64
	var gaps, squares, n float64
	last := time.Duration(0)
	for _, a := range all {
		require.Less(t, a.User, Users)
		if a.Due >= plan[0].For {
			require.Equal(t, Read, a.Class)
			require.Zero(t, a.Retries)
			continue
		}
		require.Equal(t, 3, a.Retries)
		counts[a.Class]++
		gap := (a.Due - last).Seconds()
		last = a.Due
		gaps, squares, n = gaps+gap, squares+gap*gap, n+1
	}
	for class, load := range Mix(2) {
		require.InEpsilon(t, load*Capacity*20, counts[class], 0.05)
	}
	// The gaps of a Poisson process are exponential: their deviation equals their mean.
	mean := gaps / n
	require.InEpsilon(t, mean*mean, squares/n-mean*mean, 0.05)
}

func TestServiceTimesMakeTheCapacityExact(t *testing.T) {
	times := ServiceTimes(1)
	sum, above := time.Duration(0), 0
	for _, d := range times {
		require.Positive(t, d)
		sum += d
		if d > MeanService {
			above++
		}
	}
	require.Equal(t, MeanService*time.Duration(len(times)), sum)
	require.InDelta(t, 0.368, float64(above)/float64(len(times)), 0.01) // 1/e of an exponential distribution
	require.Equal(t, times, ServiceTimes(1))
	require.NotEqual(t, times, ServiceTimes(2))
	require.Equal(t, float64(Capacity), Workers/MeanService.Seconds())
}

func TestContendersAreGood(t *testing.T) {
	all := Contenders()
	require.Equal(t, "weir", all[len(all)-2].Name)
	require.Equal(t, Estimated, all[len(all)-1].Name)
	for _, c := range all {
		require.NoError(t, c.Settings.Validate())
		require.Len(t, c.Settings.Classes, Classes)
	}
}
