package limiter_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/pkg/limiter"
	"github.com/weir-edge/weir/pkg/limiter/memory"
	"github.com/weir-edge/weir/pkg/limiter/storetest"
)

func TestSpreadAsksEachSlotOnce(t *testing.T) {
	next := &counted{next: memory.New(memory.Config{})}
	s := limiter.NewSpread(next, time.Minute)
	l, o := rule(t, "r fixed_window limit=5 window=1h"), rule(t, "o fixed_window limit=9 window=1h")
	require.True(t, ask(t, s, check(l, "a", 1), check(o, "a", 1)).Allowed)
	require.EqualValues(t, 1, next.takes.Load(), "one slot takes one call")

	d := ask(t, s, check(l, "a", 1), check(o, "b", 2), check(o, "a", 3))
	require.True(t, d.Allowed)
	require.EqualValues(t, 3, next.takes.Load())
	var remaining []int64
	for _, r := range d.Results {
		remaining = append(remaining, r.Remaining)
	}
	require.Equal(t, []int64{3, 7, 5}, remaining, "in the order of the checks")
	require.Zero(t, next.returns.Load())
}

func TestSpreadReturnsWhatAnotherSlotRefused(t *testing.T) {
	for name, l := range every(t) {
		if l.MinInterval > 0 {
			continue // would refuse the second of two
		}
		t.Run(name, func(t *testing.T) {
			next := &counted{next: memory.New(memory.Config{})}
			s := limiter.NewSpread(next, time.Minute)
			one := rule(t, "one rolling_window limit=1 window=1h")
			require.True(t, ask(t, s, check(l, "a", 1), check(one, "b", 1)).Allowed)
			before := ask(t, next, peek(check(l, "a", 1))).Results[0].Remaining

			d := ask(t, s, check(l, "a", 1), check(one, "b", 1))
			require.False(t, d.Allowed)
			require.True(t, d.Results[0].Allowed)
			require.False(t, d.Results[0].Charged, "returned")
			require.False(t, d.Results[1].Allowed)
			after := ask(t, next, peek(check(l, "a", 1))).Results[0].Remaining
			require.GreaterOrEqual(t, after, before, "time may have freed more")
			require.GreaterOrEqual(t, d.Results[0].Remaining, before)
		})
	}
}

func TestSpreadErrorInOnePart(t *testing.T) {
	next := &counted{next: memory.New(memory.Config{}), err: limiter.ErrTimeout, errFor: "{b}"}
	s := limiter.NewSpread(next, time.Minute)
	l := rule(t, "r fixed_window limit=5 window=1h")
	checks := []limiter.Check{check(l, "a", 1), check(l, "b", 1), check(l, "c", 1)}
	var d limiter.Decision
	ctx := context.Background()
	require.ErrorIs(t, s.Take(ctx, checks, &d), limiter.ErrTimeout)
	require.False(t, d.Allowed)
	require.EqualValues(t, 2, next.returns.Load(), "the parts that passed are returned")
	require.EqualValues(t, 5, ask(t, next, peek(checks[0])).Results[0].Remaining)
	require.EqualValues(t, 5, ask(t, next, peek(checks[2])).Results[0].Remaining)

	require.ErrorIs(t, s.Reset(ctx, checks), limiter.ErrTimeout)
	require.EqualValues(t, 3, next.reset.Load(), "the others are reset anyway")
}

func TestSpreadReturn(t *testing.T) {
	next := &counted{next: memory.New(memory.Config{})}
	s := limiter.NewSpread(next, time.Minute)
	l, c := rule(t, "r fixed_window limit=5 window=1h"), rule(t, "c concurrency limit=5 window=1h")
	checks := []limiter.Check{check(l, "a", 1), check(c, "b", 1), check(c, "a", 1)}
	d := ask(t, s, checks...)
	require.NoError(t, s.Return(context.Background(), checks, d))
	for _, check := range checks {
		require.EqualValues(t, 5, ask(t, next, peek(check)).Results[0].Remaining)
	}
}

// The slot that has refused most lately is asked alone: what it refuses is charged nowhere else,
// until it has passed a few requests.
func TestSpreadAsksFirstWhatRefuses(t *testing.T) {
	clock := &storetest.Clock{}
	next := &counted{next: memory.New(memory.Config{Clock: clock.Now})}
	shared, own := rule(t, "shared fixed_window limit=20 window=1h"), rule(t, "own fixed_window limit=1 window=1s")
	s := limiter.NewSpread(next, time.Minute)
	for s.ShareACount(check(shared, "tenant", 1), check(own, "a", 1), check(own, "b", 1)) {
		s = limiter.NewSpread(next, time.Minute)
	}
	f := func(client string, allowed bool, takes, returns int64) {
		t.Helper()
		next.takes.Store(0)
		next.returns.Store(0)
		d := ask(t, s, check(shared, "tenant", 1), check(own, client, 1))
		require.Equal(t, allowed, d.Allowed)
		require.Equal(t, []int64{takes, returns}, []int64{next.takes.Load(), next.returns.Load()})
		for i, limit := range []int64{20, 1} { // in the order of the checks
			if r := d.Results[i]; takes == 2 || r.Source != limiter.SourceNone {
				require.Equal(t, limit, r.Limit)
			}
		}
	}
	left := func() int64 { return ask(t, next, peek(check(shared, "tenant", 1))).Results[0].Remaining }
	clock.Set(0)
	f("a", true, 2, 0)
	f("a", false, 2, 1) // nothing is known of the client yet
	for second := range time.Duration(5) {
		for range 80 {
			f("a", false, 1, 0)
		}
		f(fmt.Sprint("other", second), true, 2, 0)
		clock.Set((second + 1) * time.Second)
		f("a", true, 2, 0)
	}
	require.EqualValues(t, 20-11, left())
	for second := range time.Duration(6) { // it behaves
		clock.Set((second + 6) * time.Second)
		f("a", true, 2, 0)
	}
	f("a", false, 2, 1)
	require.EqualValues(t, 3, left())

	// The shared slot is asked first while it refuses, and no longer once it passes.
	for second := range time.Duration(3) {
		f(fmt.Sprint("another", second), true, 2, 0)
	}
	f("b", false, 2, 1)
	for range 80 {
		f("b", false, 1, 0)
	}
	require.NoError(t, s.Reset(context.Background(), []limiter.Check{check(shared, "tenant", 1)}))
	seconds := time.Duration(11)
	for range 7 {
		seconds++
		clock.Set(seconds * time.Second)
		f("b", true, 2, 0)
	}
	f("b", false, 2, 1)
	f("b", false, 1, 0)
	require.EqualValues(t, 13, left())
}

// bySlot is a store for each subject.
type bySlot map[string]limiter.TakeReturner

func (b bySlot) of(checks []limiter.Check) limiter.TakeReturner {
	return b[string(limiter.Subject(checks[0].Key))]
}

func (b bySlot) Take(ctx context.Context, checks []limiter.Check, d *limiter.Decision) error {
	return b.of(checks).Take(ctx, checks, d)
}

func (b bySlot) Return(ctx context.Context, checks []limiter.Check, d *limiter.Decision) error {
	return b.of(checks).Return(ctx, checks, d)
}

func (b bySlot) Reset(ctx context.Context, checks []limiter.Check) error {
	return b.of(checks).Reset(ctx, checks)
}

// Asking one slot first takes no more than the budget in all.
func TestSpreadKeepsTheBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shards, slots := map[string]*shard{}, bySlot{}
		for _, name := range []string{"a", "b"} {
			shards[name] = newShard()
			c := limiter.NewCombine(shards[name], budget, 1, 0, nil)
			defer c.Close()
			slots[name] = c
		}
		s := limiter.NewSpread(slots, budget)
		wide, narrow := rule(t, "wide fixed_window limit=9 window=1h"), rule(t, "narrow fixed_window limit=2 window=1h")
		checks := []limiter.Check{check(wide, "a", 1), check(narrow, "b", 1)}
		ask(t, s, checks[0], check(narrow, "b", 2))
		require.False(t, ask(t, s, checks...).Allowed)
		require.NoError(t, s.Reset(context.Background(), checks[1:]))

		shards["a"].hang()
		shards["b"].hang()
		began := time.Now()
		go func() {
			pass(budget - 5*time.Millisecond)
			shards["b"].resume()
		}()
		var d limiter.Decision
		require.ErrorIs(t, s.Take(context.Background(), checks, &d), limiter.ErrTimeout)
		require.False(t, d.Allowed)
		require.Equal(t, budget, time.Since(began))
		shards["a"].resume()
		synctest.Wait()
		require.EqualValues(t, 2, ask(t, s, peek(checks[1])).Results[0].Remaining, "what the first slot charged is returned")
	})
}

// failsToReturn is a store that takes but cannot return.
type failsToReturn struct{ limiter.TakeReturner }

func (failsToReturn) Return(context.Context, []limiter.Check, *limiter.Decision) error {
	return errors.New("gone")
}

func TestSpreadSaysWhatStayedCharged(t *testing.T) {
	s := limiter.NewSpread(failsToReturn{memory.New(memory.Config{})}, time.Minute)
	l, one := rule(t, "r fixed_window limit=5 window=1h"), rule(t, "one rolling_window limit=1 window=1h")
	ask(t, s, check(one, "b", 1))
	d := ask(t, s, check(l, "a", 1), check(one, "b", 1))
	require.False(t, d.Allowed)
	require.True(t, d.Results[0].Charged)
	require.EqualValues(t, 4, d.Results[0].Remaining)
}

// A refusal is Unavailable only if no exhausted limit explains it.
func TestSpreadUnavailable(t *testing.T) {
	local := memory.New(memory.Config{})
	away := limiter.NewFallback(&counted{err: limiter.ErrTimeout}, local, func() int { return 1 }, nil)
	s := limiter.NewSpread(away, time.Minute)
	closed, one := rule(t, "closed fixed_window limit=5 window=1h"), rule(t, "one rolling_window limit=1 window=1h")
	closed.OnFailure = limiter.Closed
	f := func(allowed, unavailable bool, checks ...limiter.Check) {
		t.Helper()
		d := ask(t, s, checks...)
		require.Equal(t, allowed, d.Allowed)
		require.Equal(t, unavailable, d.Unavailable)
	}
	f(false, true, check(closed, "a", 1), check(one, "b", 1))
	f(true, false, check(one, "b", 1), check(one, "c", 1)) // the first was returned
	f(false, false, check(closed, "a", 1), check(one, "b", 1))
	f(false, false, check(one, "b", 1), check(closed, "a", 1))
	f(false, true, check(closed, "a", 1), check(closed, "b", 1))
}

func TestSubject(t *testing.T) {
	for key, want := range map[string]string{
		"weir:{203.0.113.7}:r:fw":     "203.0.113.7",
		"weir:{2001:db8::/64}:r:fw:x": "2001:db8::/64",
		"weir:{*}:r:fw":               "*",
		"weir:{}:r:fw":                "weir:{}:r:fw", // as in Redis
		"weir:r":                      "weir:r",
		"weir:{r":                     "weir:{r",
	} {
		require.Equal(t, want, string(limiter.Subject([]byte(key))))
	}
}
