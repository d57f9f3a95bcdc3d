package overload

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/pkg/shedder"
)

func TestPublishedTimeline(t *testing.T) {
	settings := shedder.Defaults()
	held := func(s shedder.State, seconds, utilization float64) shedder.State {
		for range int(math.Round(seconds / Interval.Seconds())) {
			s = Published(s, Interval, &shedder.Reading{Utilization: utilization}, &settings)
		}
		return s
	}
	s := held(shedder.State{}, 119.9, 1)
	require.Zero(t, s.Level, "the fault of its patience: 120 s")
	s = held(s, 61, 1)
	require.InDelta(t, 1.5, s.Level, 0.03, "half of everything after another 60 s")
	s = held(s, 1000, 0.75)
	require.InDelta(t, 1.5, s.Level, 0.03, "the latch: nothing is restored in the dead band")
	s = held(s, 59, 0)
	require.InDelta(t, 0.03, s.Level, 0.04, "as slow to restore as to shed")
}
