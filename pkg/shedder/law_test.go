package shedder

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// held runs a law on a constant reading.
func held(law string, s State, seconds float64, r Reading) State {
	settings := Defaults()
	for range int(math.Round(seconds / Interval.Seconds())) {
		s = laws[law](s, Interval, &r, &settings)
	}
	return s
}

// demanding returns a reading with equal demand in four classes.
func demanding(utilization, demand, served float64) Reading {
	r := Reading{Utilization: utilization, Served: served}
	for i := range 4 {
		r.Demand[i] = demand / 4
	}
	return r
}

func TestIntegratorTimeline(t *testing.T) {
	rest := State{}
	even := demanding(1, 1000, 1000)
	require.Zero(t, held(LawIntegrator, rest, 27.9, even).Level, "28 s of patience")
	require.InDelta(t, 0.05, held(LawIntegrator, rest, 30, even).Level, 0.01)
	deep := held(LawIntegrator, rest, 2, demanding(1, 2000, 1000))
	require.Greater(t, deep.Level, 0.1, "excess demand sheds sooner than 28 s and 120 s")
	require.Zero(t, held(LawIntegrator, deep, 60, demanding(0.75, 750, 750)).Level, "no latch")
	require.Zero(t, held(LawIntegrator, State{Integral: 1 + 28.0/120, Level: 3}, 10.1, demanding(0, 100, 100)).Level, "restored in 10 s")
}

func TestPITimeline(t *testing.T) {
	rest := State{}
	require.Zero(t, held(LawPI, rest, 600, demanding(0.79, 5000, 1000)).Level, "below start nothing is shed")
	require.Zero(t, held(LawPI, rest, 27.9, demanding(0.9, 1000, 1000)).Level, "28 s of patience")
	slow := held(LawPI, rest, 40, demanding(0.9, 1000, 1000))
	require.Greater(t, slow.Level, 0.0, "then gradually")
	require.Less(t, slow.Level, 0.5)

	quick := held(LawPI, rest, 0.5, demanding(0.95, 2000, 1000))
	require.InDelta(t, 2.0, quick.Level, 0.1, "half a second after demand doubles, half is shed")
	require.InDelta(t, 3.0, held(LawPI, rest, 0.3, demanding(1, 10_000, 1000)).Level, 1e-9)

	require.Equal(t, State{}, held(LawPI, quick, 0.1, demanding(0.2, 500, 500)), "all of it fits")
	require.Zero(t, held(LawPI, quick, 0.1, demanding(0.75, 750, 750)).Level, "no dead band to get stuck in")
	require.Equal(t, State{}, held(LawPI, held(LawPI, rest, 20, demanding(0.9, 1000, 1000)), 0.4, demanding(0.5, 1000, 1000)), "patience recovers as fast")
}

// Demand that caps hold down is judged by its mean.
func TestPIWhileCapsRefuse(t *testing.T) {
	swinging := func(s State, seconds, low, high, capped float64) State {
		r := [2]Reading{demanding(low, 1020, 1000), demanding(high, 1020, 1000)}
		for i := range int(seconds) {
			r[i%2].Capped = capped
			s = held(LawPI, s, 1, r[i%2])
		}
		return s
	}
	require.Zero(t, swinging(State{}, 600, 0.6, 1, 0).Level, "patience begins again whenever utilization is below start")
	require.Zero(t, swinging(State{}, 26, 0.6, 1, 20).Level, "patience is as long")
	require.Positive(t, swinging(State{}, 36, 0.6, 1, 20).Rate, "and is used up by a mean of 0.8")
	require.Zero(t, swinging(State{}, 600, 0.2, 1, 20).Rate, "not by a mean of 0.6")
	require.Zero(t, swinging(State{}, 600, 0.6, 1, 1).Rate, "one in a thousand is rare")
	quiet := demanding(0.3, 1000, 1000)
	require.Equal(t, State{}, held(LawPI, swinging(State{}, 20, 0.6, 1, 20), 0.3, quiet), "without refusals patience is restored as soon as ever")
	quiet.Capped = 20
	require.Zero(t, held(LawPI, swinging(State{}, 20, 0.6, 1, 20), 10, quiet).Integral, "and with them when the mean has fallen")
}

// Demand that fits only by chance does not end regulation: a load at capacity would be left to
// the caps for another patience each time.
func TestPIKeepsRegulatingAtCapacity(t *testing.T) {
	engaged := held(LawPI, State{}, 40, demanding(0.9, 1000, 1000))
	engaged.Rate = 1000
	fits := held(LawPI, engaged, 0.1, demanding(0.6, 950, 950))
	require.Zero(t, fits.Level)
	require.Positive(t, fits.Rate)
	require.Equal(t, State{}, held(LawPI, engaged, 0.1, demanding(0.6, 900, 900)), "a tenth less fits for good")
}

func TestPIHungUpstream(t *testing.T) {
	s := held(LawPI, State{}, 60, demanding(1, 1000, 0))
	require.Equal(t, 3.0, s.Level)
	require.Equal(t, 1.0, s.Rate, "a rate of 0 would mean not regulating")
	s = held(LawPI, s, 5, demanding(0.1, 1000, 900))
	require.Less(t, s.Level, 0.6, "restored capacity is admitted again")
}

func TestLawsStayInBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		settings := Defaults()
		settings.Law = rapid.SampledFrom([]string{LawPI, LawIntegrator, LawCap}).Draw(t, "law")
		settings.Classes = settings.Classes[:rapid.IntRange(1, 4).Draw(t, "classes")]
		var s State
		for range 200 {
			r := Reading{Utilization: rapid.Float64Range(0, 1).Draw(t, "u"), Served: rapid.Float64Range(0, 1e5).Draw(t, "served")}
			for i := range settings.Classes {
				r.Demand[i] = rapid.Float64Range(0, 1e5).Draw(t, "demand")
			}
			dt := time.Duration(rapid.Int64Range(1, int64(time.Second)).Draw(t, "dt"))
			s = laws[settings.Law](s, dt, &r, &settings)
			require.GreaterOrEqual(t, s.Level, 0.0)
			require.LessOrEqual(t, s.Level, float64(len(settings.Classes)-1))
			require.False(t, math.IsNaN(s.Rate) || math.IsInf(s.Rate, 0) || s.Rate < 0)
		}
	})
}

func TestLevelForLetsInTheRate(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		classes := rapid.IntRange(1, MaxClasses).Draw(t, "classes")
		var r Reading
		for i := range classes {
			r.Demand[i] = rapid.Float64Range(0, 1000).Draw(t, "demand")
		}
		rate := rapid.Float64Range(0, 10_000).Draw(t, "rate")
		level, in := r.levelFor(rate, classes), 0.0
		for i := range classes {
			in += r.Demand[i] * (1 - share(level, i, classes))
			if i > 0 && share(level, i, classes) < 1 {
				continue
			}
			for lower := i + 1; lower < classes && i > 0; lower++ {
				require.Equal(t, 1.0, share(level, lower, classes), "lower classes go first")
			}
		}
		require.InDelta(t, max(r.Demand[0], min(rate, r.total())), in, 1e-6)
		require.Zero(t, share(level, 0, classes), "the first class is never shed by the level")
	})
}
