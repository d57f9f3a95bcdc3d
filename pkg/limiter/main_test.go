package limiter_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/weir-edge/weir/pkg/limiter"
	"github.com/weir-edge/weir/pkg/limiter/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rule parses a limit as the timelines write it.
func rule(t testing.TB, line string) *limiter.Limit {
	t.Helper()
	l, err := storetest.ParseLimit(strings.Fields(line))
	require.NoError(t, err)
	return l
}

// check returns a check of one client's request under l.
func check(l *limiter.Limit, subject string, cost int64) limiter.Check {
	return limiter.Check{Limit: l, Key: storetest.Key(subject, l), Cost: cost}
}

// ask calls Take and returns the decision.
func ask(t testing.TB, s limiter.Store, checks ...limiter.Check) *limiter.Decision {
	t.Helper()
	var d limiter.Decision
	require.NoError(t, s.Take(context.Background(), checks, &d))
	require.Len(t, d.Results, len(checks))
	return &d
}

// counted counts the calls to next, and fails them if err is set.
type counted struct {
	next                  limiter.FullStore
	takes, returns, reset atomic.Int64
	err                   error
	errFor                string // only calls with this in a key; "" means all
}

func (c *counted) failing(checks []limiter.Check) error {
	for i := range checks {
		if strings.Contains(string(checks[i].Key), c.errFor) {
			return c.err
		}
	}
	return nil
}

func (c *counted) Take(ctx context.Context, checks []limiter.Check, d *limiter.Decision) error {
	c.takes.Add(1)
	if err := c.failing(checks); err != nil {
		return err
	}
	return c.next.Take(ctx, checks, d)
}

func (c *counted) Return(ctx context.Context, checks []limiter.Check, d *limiter.Decision) error {
	c.returns.Add(1)
	if err := c.failing(checks); err != nil {
		return err
	}
	return c.next.Return(ctx, checks, d)
}

func (c *counted) Reset(ctx context.Context, checks []limiter.Check) error {
	c.reset.Add(1)
	if err := c.failing(checks); err != nil {
		return err
	}
	return c.next.Reset(ctx, checks)
}

// every returns one limit per algorithm: three per second, where it has a rate.
func every(t testing.TB) map[string]*limiter.Limit {
	limits := map[string]*limiter.Limit{}
	for _, line := range []string{
		"fixed_window limit=3 window=1s",
		"sliding_window limit=3 window=1s",
		"token_bucket limit=3 window=1s burst=2",
		"leaky_bucket limit=3 window=1s burst=1",
		"rolling_window limit=3 window=1s",
		"rolling_window limit=3 window=1s storage=sorted_set",
		"rolling_window limit=3 window=1s min_interval=100ms",
	} {
		limits[line] = rule(t, fmt.Sprintf("rule%d %s", len(limits), line))
	}
	return limits
}
