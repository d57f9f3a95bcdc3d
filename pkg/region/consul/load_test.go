package consul

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestLoadIsRead(t *testing.T) {
	f := func(text string, want float64, told bool) {
		t.Helper()
		l, is := newLoad(map[string]string{MetaDemand: text})
		require.Equal(t, told, is, text)
		require.InDelta(t, want, l.Demand, 0, text)
	}
	f("980.5", 980.5, true)
	f("0", 0, true)
	for _, text := range []string{"", "x", "-1", "NaN", "Inf", "1e99"} {
		f(text, 0, false)
	}
}

func TestLoadTravels(t *testing.T) {
	for _, l := range []Load{{}, {Demand: 1234, Capacity: 1000}, {Demand: 123.4, CapacityAtLeast: 160}} {
		meta := map[string]string{}
		l.Put(meta)
		got, told := newLoad(meta)
		require.True(t, told)
		require.Equal(t, l, got)
	}
}

func TestLoadIsWorthARegistration(t *testing.T) {
	f := func(want bool, told, now Load) {
		t.Helper()
		require.Equal(t, want, now.Due(told, 10*time.Second), "%v after %v", now, told)
		found := now.Capacity > 0 && told.Capacity == 0
		require.Equal(t, found, now.Due(told, 9*time.Second), "%v after %v", now, told)
	}
	full := Load{Demand: 990, Capacity: 1000}
	f(false, full, Load{Demand: 960, Capacity: 1000})
	f(true, full, Load{Demand: 1040, Capacity: 1100})
	f(true, full, Load{Demand: 1005, Capacity: 1000})
	f(false, Load{Demand: 1005, Capacity: 1000}, Load{Demand: 1030, Capacity: 1000})
	f(true, Load{CapacityAtLeast: 1200}, Load{CapacityAtLeast: 1000})
	f(false, full, Load{Demand: 990, Capacity: 1000, CapacityAtLeast: 5000})
	f(false, Load{Demand: 0.5}, Load{Demand: 1.2})
	f(true, Load{}, Load{Demand: 2})
	f(true, Load{Demand: 990, CapacityAtLeast: 1000}, full)
}
