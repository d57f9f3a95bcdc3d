package shedder

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A site that hears nothing for a second and then everyone who waited reports about the same
// demand as before. It reports a lasting change within seconds.
func TestAStallIsNoDemand(t *testing.T) {
	s, now := newShedder(t, Defaults()), start
	least, most := 1e9, 0.0
	run := func(ticks int, each int) {
		for range ticks {
			for n := range each {
				if p, ok := s.Admit(2, uint64(n)); ok {
					p.Sent()
					p.Answered()
					p.Done()
				}
			}
			now = now.Add(Interval)
			s.Tick(now, nil)
			d := s.Status().Demand
			least, most = min(least, d), max(most, d)
		}
	}
	run(100, 100)
	least, most = 1e9, 0
	for range 10 {
		run(10, 0)
		run(2, 600)
		run(30, 100)
	}
	require.Greater(t, least, 400.0)
	require.Less(t, most, 1450.0)
	run(50, 200)
	require.InDelta(t, 2000, s.Status().Demand, 150)
	run(100, 0)
	require.Less(t, s.Status().Demand, 20.0)
}

// A site whose origin stalls and then answers everyone who waited promises the same capacity as
// before.
func TestAStallIsNoPromise(t *testing.T) {
	s, now := newShedder(t, Defaults()), start
	var waiting []Permit
	most := 0.0
	run := func(ticks int, answers bool) {
		for range ticks {
			for n := range 20 {
				p, ok := s.Admit(2, uint64(n))
				require.True(t, ok)
				p.Sent()
				waiting = append(waiting, p)
			}
			for _, p := range waiting {
				if answers {
					p.Answered()
					p.Done()
				}
			}
			if answers {
				waiting = nil
			}
			now = now.Add(Interval)
			s.Tick(now, nil)
			st := s.Status()
			require.False(t, st.Measured)
			most = max(most, st.Capacity/estimateCapacity(&Reading{Served: 1, Utilization: st.Utilization}, st.Settings.Target))
		}
	}
	run(300, true)
	most = 0
	for range 10 {
		run(10, false)
		run(30, true)
	}
	require.Less(t, most, 230.0)
}
