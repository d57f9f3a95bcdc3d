package limiter_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/pkg/limiter"
	"github.com/weir-edge/weir/pkg/limiter/memory"
)

// falling is a Fallback whose shared store is unreachable until its err is cleared.
type falling struct {
	*limiter.Fallback
	shared *counted
	local  *counted
	nodes  int
	heard  []error
}

func newFalling(nodes int) *falling {
	f := &falling{
		shared: &counted{next: memory.New(memory.Config{Source: limiter.SourceRedis}), err: limiter.ErrTimeout},
		local:  &counted{next: memory.New(memory.Config{})}, nodes: nodes,
	}
	f.Fallback = limiter.NewFallback(f.shared, f.local, func() int { return f.nodes }, func(err error) { f.heard = append(f.heard, err) })
	return f
}

func onFailure(l *limiter.Limit, o limiter.OnFailure) *limiter.Limit {
	l.OnFailure = o
	return l
}

func TestFallbackCountsThisNodesShare(t *testing.T) {
	f := newFalling(3)
	l := rule(t, "r fixed_window limit=10 window=1h")
	for i := range 6 {
		d := ask(t, f, check(l, "a", 1))
		require.Equal(t, i < 4, d.Allowed, "ceil(10/3)")
		require.False(t, d.StoreUnavailable)
		r := d.Results[0]
		require.Equal(t, limiter.SourceFallback, r.Source)
		require.EqualValues(t, 4, r.Limit)
		require.EqualValues(t, max(0, 3-i), r.Remaining)
		require.Equal(t, i < 4, r.Charged)
	}
	require.Len(t, f.heard, 6)
	require.ErrorIs(t, f.heard[0], limiter.ErrTimeout)

	// With fewer nodes, each share is larger. The shared store is used again as soon as it
	// recovers.
	f.nodes = 2
	require.EqualValues(t, 5, ask(t, f, check(l, "a", 1)).Results[0].Limit)
	f.shared.err = nil
	d := ask(t, f, check(l, "a", 1))
	require.Equal(t, limiter.SourceRedis, d.Results[0].Source)
	require.EqualValues(t, 9, d.Results[0].Remaining)
}

func TestShare(t *testing.T) {
	f := func(line string, nodes int, limit, capacity int64) {
		t.Helper()
		l := rule(t, line)
		s := l.Share(nodes)
		require.Equal(t, limit, s.Limit)
		if capacity > 0 {
			require.Equal(t, capacity, s.Capacity())
		}
		require.Empty(t, s.Validate())
		require.Same(t, s, l.Share(nodes), "or Denied would not recognize it")
		require.Equal(t, l.Shadow, s.Shadow)
		require.Equal(t, l.Tag(), s.Tag())
	}
	f("r fixed_window limit=10 window=1s", 0, 10, 0)
	f("r fixed_window limit=10 window=1s", 1, 10, 0)
	f("r fixed_window limit=10 window=1s", 3, 4, 0)
	f("r fixed_window limit=10 window=1s shadow", 10, 1, 0)
	f("r fixed_window limit=10 window=1s", 11, 1, 0)
	f("r token_bucket limit=10 window=1s burst=5", 2, 5, 3)
	f("r leaky_bucket limit=10 window=1s burst=3", 3, 4, 2)
	f("r leaky_bucket limit=10 window=1s", 3, 4, 1)
	f("r rolling_window limit=7 window=1s storage=sorted_set", 2, 4, 0)
	f("r concurrency limit=7 window=1s", 2, 4, 0)
}

func TestFallbackPolicies(t *testing.T) {
	local := rule(t, "local rolling_window limit=1 window=1h")
	open := onFailure(rule(t, "open fixed_window limit=1 window=1h"), limiter.Open)
	closed := onFailure(rule(t, "closed fixed_window limit=1 window=1h"), limiter.Closed)
	shadow := onFailure(rule(t, "shadow fixed_window limit=1 window=1h shadow"), limiter.Closed)
	f := newFalling(1)
	try := func(allowed, unavailable bool, limits ...*limiter.Limit) *limiter.Decision {
		t.Helper()
		var checks []limiter.Check
		for _, l := range limits {
			checks = append(checks, check(l, "a", 1))
		}
		d := ask(t, f, checks...)
		require.Equal(t, allowed, d.Allowed)
		require.Equal(t, unavailable, d.StoreUnavailable)
		for _, r := range d.Results {
			require.Equal(t, limiter.SourceFallback, r.Source)
		}
		return d
	}
	for range 3 { // not counted
		require.True(t, try(true, false, open).Results[0].Failed)
	}
	require.True(t, try(false, true, closed).Results[0].Failed)
	require.False(t, try(true, false, shadow).Results[0].Allowed, "a shadow rule reports but never refuses")
	try(false, true, open, closed, shadow)

	// The request is refused already, so the local rule is peeked at, not charged.
	d := try(false, true, local, closed)
	require.False(t, d.Results[0].Charged)
	require.True(t, d.Results[0].Allowed)
	require.True(t, try(true, false, local, open, shadow).Results[0].Charged)
	// An exhausted limit is the better reason.
	try(false, false, local, closed)
	try(false, false, open, local)
}

// A share can be smaller than the cost of one request, which then costs the share.
func TestFallbackCostAboveTheShare(t *testing.T) {
	f := newFalling(10)
	l := rule(t, "r fixed_window limit=20 window=1h")
	require.True(t, ask(t, f, check(l, "a", 15)).Allowed)
	require.False(t, ask(t, f, check(l, "a", 15)).Allowed)
}

func TestFallbackReturnsToWhoCharged(t *testing.T) {
	ctx := context.Background()
	f := newFalling(1)
	l := rule(t, "c concurrency limit=1 window=1h")
	open := onFailure(rule(t, "open fixed_window limit=1 window=1h"), limiter.Open)
	checks := []limiter.Check{check(open, "a", 1), check(l, "a", 1)}
	checks[1].Slot = 7
	d := ask(t, f, checks...)
	require.True(t, d.Allowed)
	require.False(t, ask(t, f, checks...).Allowed)
	f.shared.err = nil // a local charge is returned locally even so
	require.NoError(t, f.Return(ctx, checks, d))
	require.Zero(t, f.shared.returns.Load())
	require.EqualValues(t, 1, f.local.returns.Load())
	f.shared.err = limiter.ErrBroken
	require.True(t, ask(t, f, checks...).Allowed)

	f.shared.err = nil
	d = ask(t, f, checks...)
	require.Equal(t, limiter.SourceRedis, d.Results[1].Source)
	require.NoError(t, f.Return(ctx, checks, d))
	require.EqualValues(t, 1, f.shared.returns.Load())
	require.EqualValues(t, 1, f.local.returns.Load())
	require.True(t, ask(t, f, checks...).Allowed)
}

func TestFallbackReset(t *testing.T) {
	f := newFalling(1)
	checks := []limiter.Check{check(rule(t, "r fixed_window limit=1 window=1h"), "a", 1)}
	ask(t, f, checks...)
	require.ErrorIs(t, f.Reset(context.Background(), checks), limiter.ErrTimeout, "an operator sees the error")
	require.True(t, ask(t, f, checks...).Allowed, "the local count is forgotten")
	f.shared.err = nil
	require.NoError(t, f.Reset(context.Background(), checks))
	f.local.err = errors.New("never")
	require.ErrorIs(t, f.Reset(context.Background(), checks), f.local.err)
}

// A node charges an overdraft whole against its share, also if a rule that fails closed refuses.
func TestFallbackChargesOverdrafts(t *testing.T) {
	owing := rule(t, "owing fixed_window limit=10 window=1h overdraft")
	closed := onFailure(rule(t, "closed fixed_window limit=10 window=1h"), limiter.Closed)
	f := newFalling(2)
	defer f.Close()
	require.True(t, ask(t, f, check(owing, "a", 3)).Allowed)
	require.False(t, ask(t, f, check(owing, "a", 9000), check(closed, "a", 1)).Allowed)
	require.False(t, ask(t, f, check(owing, "a", -8997)).Allowed, "6 of the share of 5")
	require.True(t, ask(t, f, check(owing, "a", -1)).Allowed)
}
