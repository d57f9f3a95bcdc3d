package load

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/pkg/region/consul"
	"github.com/weir-edge/weir/pkg/shedder"
)

// A group that few ask for hardly counts, even if it is overloaded.
func TestLoadWeighsGroups(t *testing.T) {
	f := func(demand, fullness float64, measured bool, groups ...shedder.Status) {
		t.Helper()
		l := loadOf(groups)
		require.InDelta(t, demand, l.Demand, 1e-9)
		require.InDelta(t, fullness, l.Demand/max(l.Capacity+l.CapacityAtLeast, 1), 1e-3)
		require.Equal(t, measured, l.Capacity > 0)
	}
	most, search := shedder.Status{Demand: 990, Capacity: 2000}, shedder.Status{Demand: 10, Capacity: 5, Measured: true}
	f(1000, 0.51, false, most, search)
	f(1200, 1.2, true, shedder.Status{Demand: 1200, Capacity: 1000, Measured: true})
	f(1000, 1.0965, true, shedder.Status{Demand: 500, Capacity: 300, Measured: true}, shedder.Status{Demand: 500, Capacity: 950})
	f(0, 0, false)
	f(0, 0, false, shedder.Status{Capacity: 0})
	require.Equal(t, &consul.Load{CapacityAtLeast: 7}, loadOf([]shedder.Status{{Capacity: 7}}))
}

// A changed load is registered at most every ten seconds, and only in steps.
func TestLoadIsToldInSteps(t *testing.T) {
	at := time.Unix(1_700_000_000, 0)
	f := func(want bool, after time.Duration, before, now registered) {
		t.Helper()
		before.at, now.at = at, at.Add(after)
		require.Equal(t, want, now.worthTelling(&before))
	}
	low, high := &consul.Load{Demand: 900, Capacity: 1000}, &consul.Load{Demand: 1200, Capacity: 1000}
	f(false, 9*time.Second, registered{load: low}, registered{load: high})
	f(true, 10*time.Second, registered{load: low}, registered{load: high})
	f(false, time.Hour, registered{load: low}, registered{load: low})
	f(true, 10*time.Second, registered{load: low}, registered{})
	f(true, 10*time.Second, registered{}, registered{load: low})
	f(false, time.Hour, registered{}, registered{})
	NewRegistered(nil).Meta(nil)
}
