package shedder

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// poisson draws the number of events in an interval.
func poisson(rng *rand.Rand, mean float64) (n uint64) {
	for left := mean - rng.ExpFloat64(); left > 0; left -= rng.ExpFloat64() {
		n++
	}
	return n
}

func TestRateIsCalmAndQuick(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	var r rate
	for range 200 {
		r.add(float64(poisson(rng, 100)), 1, Interval, byChance)
	}
	for range 600 {
		r.add(float64(poisson(rng, 100)), 1, Interval, byChance)
		require.InEpsilon(t, 1000, r.calm, 0.04)
	}
	for range 5 {
		r.add(float64(poisson(rng, 300)), 1, Interval, byChance)
	}
	require.InEpsilon(t, 2650, r.calm, 0.1, "half a second after a step")
	for range 5 {
		r.add(0, 1, Interval, byChance)
	}
	require.Less(t, r.calm, 700.0)
}

// Users want 800 requests per second. Half are shed, and each of those asks four times.
func TestDemandIsWhatUsersWantAndNotWhatTheyRepeat(t *testing.T) {
	var d demand
	for range 100 {
		tallies := [MaxClasses]tally{3: {offered: 40 + 4*40, passed: 40}}
		d.add(&tallies, 40, 0, 0.5, 4, Interval)
	}
	r := d.reading(0.5)
	require.InDelta(t, 800, r.Demand[3], 1)
	require.InDelta(t, 400, r.Served, 1)
	require.Equal(t, 0.5, r.Utilization)
	// When a class is shed completely, only its refusals can be counted.
	d = demand{}
	for range 100 {
		tallies := [MaxClasses]tally{3: {offered: 80}}
		d.add(&tallies, 0, 0, 1, 4, Interval)
	}
	require.InDelta(t, 800, d.reading(0).Demand[3], 1)
}

// A refusal by a lowered limit is demand for routers, and causes no shedding.
func TestWhatLoweredLimitsRefuseIsDemand(t *testing.T) {
	s := newShedder(t, small())
	now := start
	s.Tick(now, nil)
	for range 200 {
		for range 50 {
			s.Wanted()
		}
		now = now.Add(Interval)
		s.Tick(now, nil)
	}
	st := s.Status()
	require.InDelta(t, 500, st.Wanted, 1)
	require.InDelta(t, 500, st.Demand, 1)
	require.Zero(t, st.Level)
	for _, class := range st.Classes {
		require.Zero(t, class.Demand)
	}
	_, known := s.Utilization()
	require.True(t, known)
}
