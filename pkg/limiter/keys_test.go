package limiter_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/pkg/limiter"
	"github.com/weir-edge/weir/pkg/limiter/lease"
	"github.com/weir-edge/weir/pkg/limiter/memory"
	"github.com/weir-edge/weir/pkg/limiter/report"
)

// deaf is a Reporter that reports no other node's admissions.
type deaf struct{}

// Report implements limiter.Reporter.
func (deaf) Report(_ context.Context, reports []limiter.Report) {
	for i := range reports {
		reports[i].Now = time.Now().UnixMicro()
	}
}

// Forget implements limiter.Reporter.
func (deaf) Forget(context.Context, [][]byte) error { return nil }

// A flood of keys does not fill the memory of any layer that holds state for each key.
func TestMaxKeys(t *testing.T) {
	const most, keys = 64 * 64, 10_000
	wide := func(leased bool) *limiter.Limit {
		return &limiter.Limit{Rule: "r", Algorithm: limiter.FixedWindow, Limit: 1_000_000, Window: 24 * time.Hour, Leased: leased, Reported: !leased}
	}
	alone := func() int { return 1 }
	for name, c := range map[string]struct {
		limit    *limiter.Limit
		requests int // until the layer holds something
		open     func(next *memory.Store) (store limiter.FullStore, held func() int64, closing func())
	}{
		"leases": {wide(true), 6, func(next *memory.Store) (limiter.FullStore, func() int64, func()) {
			s := lease.New(lease.Config{Next: next, Grants: next, Nodes: alone, MaxKeys: most})
			return s, func() int64 { return s.Usages()[0].Leases }, s.Close
		}},
		"reports": {wide(false), 1, func(next *memory.Store) (limiter.FullStore, func() int64, func()) {
			local := limiter.NewFallback(next, next, alone, nil)
			s := report.New(report.Config{Next: next, Reporter: deaf{}, Local: local, Nodes: alone, Trip: time.Millisecond, MaxKeys: most})
			return s, func() int64 { return s.Usages()[0].Keys }, func() {
				s.Close()
				local.Close()
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { // no real time: what it holds expires
				s, held, closing := c.open(memory.New(memory.Config{}))
				defer closing()
				require.Empty(t, c.limit.Validate())
				var d limiter.Decision
				for i := range keys {
					checks := []limiter.Check{{Limit: c.limit, Key: fmt.Appendf(nil, "weir:{%d}:r:%s", i, c.limit.Tag()), Cost: 1}}
					for range c.requests {
						require.NoError(t, s.Take(t.Context(), checks, &d))
						require.True(t, d.Allowed)
					}
				}
				require.LessOrEqual(t, held(), int64(most))
				require.Greater(t, held(), int64(most/2))
			})
		})
	}
}
