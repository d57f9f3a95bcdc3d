package escrow

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/pkg/limiter"
	"github.com/weir-edge/weir/pkg/limiter/memory"
	"github.com/weir-edge/weir/pkg/limiter/storetest"
)

func checkOf(t *testing.T, line string) []limiter.Check {
	l, err := storetest.ParseLimit(strings.Fields(line))
	require.NoError(t, err)
	return []limiter.Check{{Limit: l, Key: storetest.Key("k", l), Cost: 1}}
}

func newStore() *Store {
	return New(memory.New(memory.Config{Clock: func() int64 { return storetest.Epoch }}))
}

// The parts of all regions are the limit, and a client sees the limit.
func TestParts(t *testing.T) {
	for _, limit := range []string{"1", "2", "10", "300"} {
		checks := checkOf(t, "r fixed_window limit="+limit+" window=10s escrow")
		passed := int64(0)
		for region := range 3 {
			s := newStore()
			s.SetPlace(region, 3)
			var d limiter.Decision
			for d.Allowed = true; d.Allowed; {
				require.NoError(t, s.Take(context.Background(), checks, &d))
				require.Equal(t, checks[0].Limit.Limit, d.Results[0].Limit)
				if d.Allowed {
					passed++
				}
			}
			list := s.Drain()
			require.Len(t, list, 1)
			require.EqualValues(t, 1, list[0].Refused)
			require.Same(t, checks[0].Limit, list[0].Limit)
			require.Empty(t, s.Drain())
		}
		require.Equal(t, checks[0].Limit.Limit, passed)
	}
}

// Until the regions are known, no part is, and what is enforced is refused.
func TestUnknownRegions(t *testing.T) {
	s := newStore()
	var d limiter.Decision
	f := func(line string, want bool) {
		t.Helper()
		require.NoError(t, s.Take(context.Background(), checkOf(t, line), &d))
		require.Equal(t, want, d.Allowed)
	}
	f("r fixed_window limit=10 window=10s escrow", false)
	require.True(t, d.Unavailable)
	f("r fixed_window limit=10 window=10s escrow shadow", true)
	f("r fixed_window limit=10 window=10s global", true)
	s.SetPlace(1, 2)
	f("r fixed_window limit=10 window=10s escrow", true)
	s.SetPlace(0, 0)
	f("r fixed_window limit=10 window=10s escrow", false)
}

func TestReturnAndReset(t *testing.T) {
	s := newStore()
	s.SetPlace(0, 1)
	checks := checkOf(t, "r fixed_window limit=1 window=10s escrow")
	var d, again limiter.Decision
	take := func(d *limiter.Decision) bool {
		require.NoError(t, s.Take(context.Background(), checks, d))
		return d.Allowed
	}
	require.True(t, take(&d))
	require.False(t, take(&again))
	require.NoError(t, s.Return(context.Background(), checks, &d))
	require.True(t, take(&d))
	require.NoError(t, s.Reset(context.Background(), checks))
	require.True(t, take(&d))
}

func TestTakeAllocatesNothing(t *testing.T) {
	s := newStore()
	s.SetPlace(0, 3)
	checks := checkOf(t, "r fixed_window limit=100 window=10s escrow")
	var d limiter.Decision
	require.Zero(t, testing.AllocsPerRun(1000, func() { _ = s.Take(context.Background(), checks, &d) }))
}
