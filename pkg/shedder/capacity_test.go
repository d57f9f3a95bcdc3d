package shedder

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCapacityIsWhatAFullSiteServes(t *testing.T) {
	settings := Defaults()
	c, now := capacity{}, start
	run := func(seconds int, level float64, r Reading) float64 {
		for range seconds * 10 {
			now = now.Add(Interval)
			c = c.next(now, Interval, r.Served, &State{Level: level}, &r, &settings, &Estimate{})
		}
		return c.measured
	}
	demand := [MaxClasses]float64{0: 1200}
	require.Zero(t, run(60, 0, Reading{Utilization: 0.9, Demand: demand, Served: 900}), "it refuses nothing")
	require.Zero(t, run(60, 0.5, Reading{Utilization: 0.1, Demand: demand, Served: 900}), "it is not busy")
	require.Zero(t, run(1, 0.5, Reading{Utilization: 0.8, Demand: demand, Served: 1000}), "one second is too short")
	require.InDelta(t, 1000, run(3, 0.5, Reading{Utilization: 0.8, Demand: demand, Served: 1000}), 1e-9, "soon")
	require.InDelta(t, 800, run(60, 0.5, Reading{Utilization: 0.8, Demand: demand, Served: 800}), 1, "it became slower")
	require.InDelta(t, 800, run(600, 0, Reading{Utilization: 0.1, Demand: demand, Served: 700}), 1)
	require.InDelta(t, 850, run(600, 0, Reading{Utilization: 0.1, Demand: demand, Served: 850}), 1e-9, "it serves more")
	require.InDelta(t, 850, run(2300, 0, Reading{Served: 10}), 1e-9)
	require.Zero(t, run(200, 0, Reading{Served: 10}), "an hour after it was last full")

	c = capacity{}
	require.InDelta(t, 1000, run(3, 0, Reading{Utilization: 0.9, Demand: demand, Served: 1000, Capped: 200}), 1e-9, "caps refuse, too")
}

// At low rates the mean of the served requests lags. It must not count as the capacity of a
// site that has just become full, or routers send too many clients away.
func TestFirstCapacityIsThatOfTheFullSite(t *testing.T) {
	settings, c, now := Defaults(), capacity{}, start
	served := rate{}
	run := func(seconds int, answered, level, utilization float64) float64 {
		for range seconds * 10 {
			now = now.Add(Interval)
			served.add(answered/10, 1, Interval, byChance)
			r := Reading{Utilization: utilization, Served: served.calm}
			c = c.next(now, Interval, answered, &State{Level: level}, &r, &settings, &Estimate{})
		}
		return c.measured
	}
	require.Zero(t, run(60, 13, 0, 0.3))
	require.InDelta(t, 33, run(4, 33, 0.5, 0.8), 1e-9)
	require.Less(t, served.calm, 25.0, "what it served before still counts in the mean")
	require.InDelta(t, 33, run(60, 20, 0, 0.3), 1e-9)
	// A site that is full again briefly does not forget its capacity.
	require.InDelta(t, 30, run(2, 20, 0.5, 0.8), 1)
	require.InDelta(t, 20, run(60, 20, 0.5, 0.8), 0.1)
}

// A shedder that has just begun refuses more than it must. The requests served then are not the
// capacity, or routers send too many clients away.
func TestRefusingTooMuchIsNoCapacity(t *testing.T) {
	settings, c, now := Defaults(), capacity{}, start
	run := func(seconds int, answered, utilization, inFlight float64) {
		for range seconds * 10 {
			now = now.Add(Interval)
			r := Reading{Utilization: utilization * settings.Target, Served: answered}
			c = c.next(now, Interval, answered, &State{Level: 0.5}, &r, &settings, &Estimate{Base: 0.4, answered: answered, inFlight: inFlight})
		}
	}
	run(4, 70, 1, 40)
	require.InDelta(t, 70, c.measured, 1e-9)
	run(10, 50, 0.6, 20)
	require.InDelta(t, 70, c.measured, 2, "no request waits")
	run(60, 50, 0.8, 32)
	require.InDelta(t, 50, c.measured, 1, "the origin is slower")
	run(60, 45, 1, 18)
	require.InDelta(t, 45, c.measured, 1, "the node is full, and not the origin")
}

// An origin that stalls and then answers everyone who waited has the same capacity as before,
// although it appears several times as large.
func TestAStallIsNoCapacity(t *testing.T) {
	settings, c, now := Defaults(), capacity{}, start
	served := rate{}
	run := func(ticks int, answered, level float64) {
		for range ticks {
			now = now.Add(Interval)
			served.add(answered/10, 1, Interval, byChance)
			r := Reading{Utilization: 0.8, Served: served.calm}
			c = c.next(now, Interval, answered, &State{Level: level}, &r, &settings, &Estimate{Base: 0.1, answered: answered, inFlight: 16})
		}
	}
	run(600, 28, 0.3)
	require.InDelta(t, 28, c.measured, 0.1)
	for range 20 {
		run(20, 0, 0)
		run(3, 28*23/3.0, 0)
		run(100, 28, 0)
	}
	require.InDelta(t, 28, c.measured, 28*0.15)
	require.InDelta(t, 28, c.knee, 28*0.15)
}

func TestPromise(t *testing.T) {
	require.InDelta(t, 2000, estimateCapacity(&Reading{Served: 100}, 0.7), 1e-9)
	require.InDelta(t, 437.5, estimateCapacity(&Reading{Served: 100, Utilization: 0.01}, 0.7), 1e-9)
	require.InDelta(t, 127.5, estimateCapacity(&Reading{Served: 100, Utilization: 0.7 / 12}, 0.7), 1e-9)
	require.InDelta(t, 115, estimateCapacity(&Reading{Served: 100, Utilization: 0.35}, 0.7), 1e-9)
	require.InDelta(t, 100, estimateCapacity(&Reading{Served: 100, Utilization: 0.9}, 0.7), 1e-9)
	s := newShedder(t, small())
	s.Tick(start, nil)
	st := s.Status()
	require.False(t, st.Measured)
	require.Zero(t, st.Capacity)
}

// A measurement counts as long as the site is full at the same load.
func TestSettingsThatChangeWhatIsFullForgetTheCapacity(t *testing.T) {
	f := func(want float64, change func(*Settings)) {
		t.Helper()
		s := newShedder(t, small())
		s.ticker.capacity.measured = 500
		settings := small()
		change(&settings)
		require.NoError(t, s.Configure(settings))
		require.Equal(t, want, s.ticker.capacity.measured)
	}
	f(500, func(*Settings) {})
	f(500, func(s *Settings) { s.Version, s.Patience, s.Rotate = "2", 3*s.Patience, 2*s.Rotate })
	f(0, func(s *Settings) { s.Signals[SignalInFlight] = Knees{0, 3 * s.Signals[SignalInFlight].High} })
	f(0, func(s *Settings) { s.Signals["queue"] = Knees{0, 10} })
	f(0, func(s *Settings) { s.Target /= 2 })
	f(0, func(s *Settings) { s.Classes[1].MaxInFlight++ })
}

// A queue shows a site's capacity before it refuses anything. Chance does not, even with few,
// slow requests in flight.
func TestAQueueBoundsThePromise(t *testing.T) {
	settings, c, now := Defaults(), capacity{}, start
	run := func(seconds int, rate, trip float64) float64 {
		for range seconds * 10 {
			now = now.Add(Interval)
			e := Estimate{Base: 0.1, answered: rate, inFlight: rate * trip}
			c = c.next(now, Interval, rate, &State{}, &Reading{Served: rate}, &settings, &e)
		}
		return c.atLeast(&Reading{Served: rate, Utilization: 0.1}, 0.7)
	}
	promised := 600 * (1 + 0.3*(1-0.1/0.7))
	require.InDelta(t, promised, run(60, 600, 0.1), 1e-9)
	require.InDelta(t, promised, run(60, 600, 0.11), 1e-9, "6 in a queue are chance")
	require.InDelta(t, promised, run(1, 600, 0.15), 1e-9, "a moment")
	require.InDelta(t, 600*(1+1/30.0), run(60, 600, 0.15), 1)
	require.InDelta(t, 606, run(30, 600, 0.3), 6, "the longer it is, the nearer")
	require.InDelta(t, 606, run(3000, 600, 0.1), 6)
	require.InDelta(t, 700, run(100, 700, 0.1), 1e-9, "it serves more")
	require.InDelta(t, promised, run(700, 600, 0.1), 1e-9, "an hour later")
	require.Zero(t, c.measured)
}
