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
			c = c.next(now, Interval, &State{Level: level}, &r, &settings)
		}
		return c.measured
	}
	demand := [MaxClasses]float64{0: 1200}
	require.Zero(t, run(60, 0, Reading{Utilization: 0.9, Demand: demand, Served: 900}), "it refuses nothing")
	require.Zero(t, run(60, 0.5, Reading{Utilization: 0.1, Demand: demand, Served: 900}), "it is not busy")
	require.InDelta(t, 1000, run(1, 0.5, Reading{Utilization: 0.8, Demand: demand, Served: 1000}), 0, "at once")
	require.InDelta(t, 800, run(60, 0.5, Reading{Utilization: 0.8, Demand: demand, Served: 800}), 1, "it became slower")
	require.InDelta(t, 800, run(600, 0, Reading{Utilization: 0.1, Demand: demand, Served: 700}), 1)
	require.InDelta(t, 850, run(600, 0, Reading{Utilization: 0.1, Demand: demand, Served: 850}), 1e-9, "it serves more")
	require.InDelta(t, 850, run(2300, 0, Reading{Served: 10}), 1e-9)
	require.Zero(t, run(200, 0, Reading{Served: 10}), "an hour after it was last full")

	c = capacity{}
	require.InDelta(t, 1000, run(1, 0, Reading{Utilization: 0.9, Demand: demand, Served: 1000, Capped: 200}), 0, "caps refuse, too")
}

func TestPromise(t *testing.T) {
	require.InDelta(t, 2000, promise(&Reading{Served: 100}, 0.7), 1e-9)
	require.InDelta(t, 437.5, promise(&Reading{Served: 100, Utilization: 0.01}, 0.7), 1e-9)
	require.InDelta(t, 127.5, promise(&Reading{Served: 100, Utilization: 0.7 / 12}, 0.7), 1e-9)
	require.InDelta(t, 115, promise(&Reading{Served: 100, Utilization: 0.35}, 0.7), 1e-9)
	require.InDelta(t, 100, promise(&Reading{Served: 100, Utilization: 0.9}, 0.7), 1e-9)
	s := newShedder(t, small())
	s.Tick(start, nil)
	st := s.Status()
	require.False(t, st.Measured)
	require.Zero(t, st.Capacity)
}

// What was measured counts as long as the site is full at the same load.
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
