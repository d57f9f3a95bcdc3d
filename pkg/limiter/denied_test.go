package limiter_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/pkg/limiter"
	"github.com/weir-edge/weir/pkg/limiter/boottime"
	"github.com/weir-edge/weir/pkg/limiter/memory"
	"github.com/weir-edge/weir/pkg/limiter/rules"
	"github.com/weir-edge/weir/pkg/limiter/storetest"
)

// remembering returns a Denied over a counted memory store, on a manual clock.
func remembering(size int) (*limiter.Denied, *counted, *storetest.Clock) {
	clock := &storetest.Clock{}
	clock.Set(0)
	next := &counted{next: memory.New(memory.Config{Clock: clock.Now})}
	m := limiter.NewDenied(next, size, 0)
	m.SetNow(func() time.Time { return time.UnixMicro(clock.Now()) })
	return m, next, clock
}

// A client that never stops asking gets the same answers with and without the memory. It costs
// the store one call for each admitted request and one for each wait.
func TestDeniedIsExact(t *testing.T) {
	for name, l := range every(t) {
		t.Run(name, func(t *testing.T) {
			m, next, clock := remembering(1000)
			plain := memory.New(memory.Config{Clock: clock.Now})
			passed, remembered := int64(0), 0
			for at := time.Duration(0); at < 5*time.Second; at += 500 * time.Microsecond {
				clock.Set(at)
				got, want := ask(t, m, check(l, "a", 1)), ask(t, plain, check(l, "a", 1))
				require.Equal(t, want.Allowed, got.Allowed, at)
				require.Equal(t, want.Results[0].RetryAfter, got.Results[0].RetryAfter, at)
				if got.Allowed {
					passed++
				}
				if got.Results[0].Source == limiter.SourceDenied {
					remembered++
				}
			}
			require.LessOrEqual(t, next.takes.Load(), 2*passed+1)
			require.Greater(t, remembered, 9000)
		})
	}
}

func TestDeniedKnowsWhatItRefused(t *testing.T) {
	m, next, _ := remembering(1000)
	l := rule(t, "r fixed_window limit=5 window=10s")
	f := func(c limiter.Check, allowed, remembered bool) {
		t.Helper()
		before := next.takes.Load()
		d := ask(t, m, c)
		require.Equal(t, allowed, d.Allowed)
		require.Equal(t, remembered, next.takes.Load() == before)
	}
	f(check(l, "a", 3), true, false)
	f(check(l, "a", 4), false, false)
	f(check(l, "a", 5), false, true)
	f(check(l, "a", 4), false, true)
	f(check(l, "a", 3), false, false) // less might have passed
	f(check(l, "a", 4), false, true)
	f(check(l, "a", 2), true, false)
	f(check(l, "b", 4), true, false)

	// Other values at the same key: another tier, or a new document.
	f(check(rule(t, "r fixed_window limit=9 window=10s"), "a", 4), true, false)
}

// A request with a higher cost waits longer, and its answer says so.
func TestDeniedIsExactForEveryCost(t *testing.T) {
	for name, l := range every(t) {
		m, _, clock := remembering(1000)
		plain := memory.New(memory.Config{Clock: clock.Now})
		for at := time.Duration(0); at < 3*time.Second; at += 5 * time.Millisecond {
			clock.Set(at)
			cost := 1 + int64(at/(5*time.Millisecond))%min(3, l.MaxCost())
			got, want := ask(t, m, check(l, "a", cost)), ask(t, plain, check(l, "a", cost))
			require.Equal(t, want.Allowed, got.Allowed, "%s at %s", name, at)
			require.Equal(t, want.Results[0].RetryAfter, got.Results[0].RetryAfter, "%s at %s, cost %d", name, at, cost)
		}
	}
}

// A bucket that tiers share drains at each tier's rate, so a refusal may end earlier than it
// said.
func TestDeniedIsExactForTiersOfABucket(t *testing.T) {
	for _, algorithm := range []string{"token_bucket", "leaky_bucket"} {
		set, err := rules.Load([]byte("rules: [{id: r, key: [], algorithm: " + algorithm + ", limit: 1, window: 10s, burst: 3, tiers: {pro: 1000}}]"))
		require.NoError(t, err)
		slow, fast := set.Rules()[0].Limit, set.Rules()[0].Tiers["pro"]
		m, _, clock := remembering(1000)
		plain := memory.New(memory.Config{Clock: clock.Now})
		for at := time.Duration(0); at < 20*time.Second; at += 250 * time.Millisecond {
			clock.Set(at)
			l := slow
			if at%time.Second == 0 {
				l = fast
			}
			got, want := ask(t, m, check(l, "a", 1)), ask(t, plain, check(l, "a", 1))
			require.Equal(t, want.Allowed, got.Allowed, "%s at %s", algorithm, at)
			require.Equal(t, want.Results[0].RetryAfter, got.Results[0].RetryAfter, "%s at %s", algorithm, at)
		}
	}
}

// A new document keeps unchanged rules' refusals, so a flood does not reach the store at each
// publication.
func TestDeniedKeepsUnchangedRules(t *testing.T) {
	const document = "rules: [{id: r, key: [], limit: 1, window: 10s}, {id: s, key: [], limit: %d, window: 10s}]"
	m, next, _ := remembering(1000)
	load := func(limit int) (unchanged, changed *limiter.Limit) {
		set, err := rules.Load([]byte(fmt.Sprintf(document, limit)))
		require.NoError(t, err)
		return set.Rules()[0].Limit, set.Rules()[1].Limit
	}
	r, s := load(1)
	for range 2 {
		ask(t, m, check(r, "r", 1))
		ask(t, m, check(s, "s", 1))
	}
	r, s = load(2)
	before := next.takes.Load()
	require.Equal(t, limiter.SourceDenied, ask(t, m, check(r, "r", 1)).Results[0].Source)
	require.Equal(t, before, next.takes.Load())
	require.True(t, ask(t, m, check(s, "s", 1)).Allowed, "the limit was raised")
}

func TestDeniedResult(t *testing.T) {
	m, next, clock := remembering(1000)
	l := rule(t, "r sliding_window limit=5 window=10s")
	other := rule(t, "o fixed_window limit=5 window=10s")
	ask(t, m, check(l, "a", 4))
	first := ask(t, m, check(l, "a", 2))
	require.Equal(t, limiter.SourceMemory, first.Results[0].Source)
	clock.Set(time.Second)
	d := ask(t, m, check(other, "a", 1), check(l, "a", 2))
	require.False(t, d.Allowed)
	require.Equal(t, limiter.Result{}, d.Results[0], "not evaluated")
	require.Equal(t, limiter.Result{
		Source: limiter.SourceDenied, Limit: 5, Remaining: 1, TakenAt: storetest.Epoch,
		RetryAfter: first.Results[0].RetryAfter - time.Second, ResetAfter: 19 * time.Second,
	}, d.Results[1])
	require.EqualValues(t, 5, ask(t, next, peek(check(other, "a", 1))).Results[0].Remaining, "nor charged")
}

func peek(c limiter.Check) limiter.Check {
	c.Peek = true
	return c
}

// A peek shows every rule.
func TestDeniedPeekSeesAll(t *testing.T) {
	m, _, _ := remembering(1000)
	l, other := rule(t, "r fixed_window limit=1 window=10s"), rule(t, "o fixed_window limit=5 window=10s")
	ask(t, m, check(l, "a", 1))
	ask(t, m, check(l, "a", 1))
	d := ask(t, m, peek(check(l, "a", 1)), peek(check(other, "a", 1)))
	require.False(t, d.Allowed)
	require.Equal(t, limiter.SourceDenied, d.Results[0].Source)
	require.Equal(t, limiter.SourceMemory, d.Results[1].Source)
	require.EqualValues(t, 5, d.Results[1].Remaining)

	// A peek's refusal is not remembered.
	m, next, _ := remembering(1000)
	ask(t, next, check(l, "a", 1))
	require.False(t, ask(t, m, peek(check(l, "a", 1))).Allowed)
	require.Zero(t, m.Len())
}

func TestDeniedReset(t *testing.T) {
	m, _, _ := remembering(1000)
	l := rule(t, "r fixed_window limit=1 window=10s")
	checks := []limiter.Check{check(l, "a", 1)}
	ask(t, m, checks...)
	require.False(t, ask(t, m, checks...).Allowed)
	require.NoError(t, m.Reset(context.Background(), checks))
	require.True(t, ask(t, m, checks...).Allowed)
}

// during runs f during a Take, after the store has decided and before its answer returns.
type during struct {
	limiter.FullStore
	f func()
}

func (s *during) Take(ctx context.Context, checks []limiter.Check, d *limiter.Decision) error {
	err := s.FullStore.Take(ctx, checks, d)
	if s.f != nil {
		s.f()
	}
	return err
}

func TestDeniedResetWhileARefusalIsUnderWay(t *testing.T) {
	store := &during{FullStore: memory.New(memory.Config{})}
	m := limiter.NewDenied(store, 1000, 0)
	checks := []limiter.Check{check(rule(t, "r rolling_window limit=1 window=1h"), "a", 1)}
	ask(t, m, checks...)
	store.f = func() { require.NoError(t, m.Reset(context.Background(), checks)) }
	require.False(t, ask(t, m, checks...).Allowed)
	store.f = nil
	require.True(t, ask(t, m, checks...).Allowed)
}

func TestDeniedNeverRemembers(t *testing.T) {
	for _, line := range []string{
		"r concurrency limit=1 window=10s",               // a slot may become free at any time
		"r fixed_window limit=1 window=10s count_denied", // must reach the store to be counted
		"r token_bucket limit=1 window=10s burst=1 count_denied",
		"r fixed_window limit=1 window=10s shadow", // refuses nothing
	} {
		m, next, _ := remembering(1000)
		l := rule(t, line)
		for range 5 {
			ask(t, m, check(l, "a", 1))
		}
		require.EqualValues(t, 5, next.takes.Load(), line)
		require.Zero(t, m.Len(), line)
	}

	// This node's own share is used up; that ends when the store recovers.
	fallback := limiter.NewFallback(&counted{err: limiter.ErrTimeout}, memory.New(memory.Config{}), func() int { return 1 }, nil)
	for line, l := range map[string]*limiter.Limit{"spent": rule(t, "r fixed_window limit=1 window=1h"), "closed": {OnFailure: limiter.Closed}} {
		m := limiter.NewDenied(fallback, 1000, 0)
		ask(t, m, check(l, "a", 1))
		require.False(t, ask(t, m, check(l, "a", 1)).Allowed, line)
		require.Zero(t, m.Len(), line)
	}
}

// Refusals under old limits are void when new ones become active.
func TestDeniedForgets(t *testing.T) {
	m, next, _ := remembering(1000)
	l := rule(t, "r fixed_window limit=1 window=10s")
	for range 3 {
		ask(t, m, check(l, "a", 1))
	}
	require.EqualValues(t, 2, next.takes.Load(), "the second refusal is remembered")
	m.ForgetInactive(func(*limiter.Limit) bool { return true })
	ask(t, m, check(l, "a", 1))
	require.EqualValues(t, 2, next.takes.Load())
	m.ForgetInactive(func(other *limiter.Limit) bool { return other != l })
	ask(t, m, check(l, "a", 1))
	require.EqualValues(t, 3, next.takes.Load())
	ask(t, m, check(l, "a", 1)) // a request still running under the old rules
	require.EqualValues(t, 4, next.takes.Load(), "nothing is remembered under a limit that is gone")
}

func TestDeniedIsBounded(t *testing.T) {
	l := rule(t, "r fixed_window limit=1 window=10s")
	f := func(size, bound int) {
		t.Helper()
		m, _, clock := remembering(size)
		for i := range 5000 {
			clock.Set(time.Duration(i) * time.Microsecond)
			subject := fmt.Sprint("client", i)
			ask(t, m, check(l, subject, 1))
			d := ask(t, m, check(l, subject, 1))
			require.False(t, d.Allowed)
			require.False(t, ask(t, m, check(l, subject, 1)).Allowed, "an evicted refusal goes to the store again")
			require.LessOrEqual(t, m.Len(), bound)
		}
		require.Greater(t, m.Len(), bound/2)
	}
	f(1, 64) // one per shard
	f(640, 640)
	f(64_000, 64_000/10)
}

func TestDeniedPassesErrorsOn(t *testing.T) {
	m, next, _ := remembering(1000)
	next.err = errors.New("away")
	checks := []limiter.Check{check(rule(t, "r fixed_window limit=1 window=10s"), "a", 1)}
	var d limiter.Decision
	ctx := context.Background()
	require.ErrorIs(t, m.Take(ctx, checks, &d), next.err)
	require.ErrorIs(t, m.Return(ctx, checks, &d), next.err)
	require.ErrorIs(t, m.Reset(ctx, checks), next.err)
	require.Zero(t, m.Len())
}

// If another slot's refusal may return a charge, no refusal outlives the return, however often
// it is repeated; a flood then costs one call for each such time.
func TestDeniedForgetsWhatMayBeReturned(t *testing.T) {
	const returns = 25 * time.Millisecond
	clock := &storetest.Clock{}
	store := memory.New(memory.Config{Clock: clock.Now})
	next := &counted{next: store}
	m := limiter.NewDenied(next, 1000, returns)
	m.SetNow(func() time.Time { return time.UnixMicro(clock.Now()) })
	l := rule(t, "r fixed_window limit=1 window=1h")
	const rounds = 400
	for round := range rounds { // another node's request, refused in its other slot
		clock.Set(time.Duration(round) * returns)
		passing := ask(t, store, check(l, "a", 1))
		require.True(t, passing.Allowed)
		require.False(t, ask(t, m, check(l, "a", 1)).Allowed)
		require.NoError(t, store.Return(context.Background(), []limiter.Check{check(l, "a", 1)}, passing))
	}
	require.EqualValues(t, rounds, next.takes.Load())
	clock.Set(rounds * returns)
	require.True(t, ask(t, m, check(l, "a", 1)).Allowed, "returned charges refuse nobody later")

	const flood = time.Minute
	before := next.takes.Load()
	for at := time.Duration(0); at < flood; at += time.Millisecond {
		clock.Set(rounds*returns + at)
		d := ask(t, m, check(l, "a", 1))
		require.False(t, d.Allowed)
		require.Equal(t, time.Hour-rounds*returns-at, d.Results[0].RetryAfter, "the full wait, not how long it is remembered")
	}
	require.EqualValues(t, flood/returns, next.takes.Load()-before)
}

// A refusal ends in time although the machine was suspended, even while the store answered.
func TestDeniedOnASuspendedMachine(t *testing.T) {
	clock := &storetest.Clock{}
	at := time.Duration(0) // the machine does nothing but sleep
	suspend := func(d time.Duration) { at += d; clock.Set(at) }
	suspend(0)
	store := &during{FullStore: memory.New(memory.Config{Clock: clock.Now})}
	m := limiter.NewDenied(store, 1000, 0)
	m.SetNow(func() time.Time { return time.UnixMicro(clock.Now()) })
	m.SetClock(boottime.New(func(t time.Time) (monotonic, wall time.Duration) {
		wall = time.Duration(t.UnixNano())
		return wall - min(at, wall-time.Duration(storetest.Epoch)*time.Microsecond), wall
	}))
	c := check(rule(t, "r rolling_window limit=1 window=10s"), "a", 1)
	f := func(allowed, remembered bool) {
		t.Helper()
		d := ask(t, m, c)
		require.Equal(t, allowed, d.Allowed)
		require.Equal(t, remembered, d.Results[0].Source == limiter.SourceDenied)
	}
	f(true, false)
	f(false, false)
	suspend(4 * time.Second)
	f(false, true)
	suspend(6 * time.Second)
	f(true, false)

	store.f = func() {
		store.f = nil
		suspend(7 * time.Second)
		ask(t, m, check(c.Limit, "b", 1)) // another request notices first
	}
	f(false, false)
	f(false, true)
	suspend(3 * time.Second)
	f(true, false)
}

// A request with a count_denied rule always reaches the store.
func TestDeniedLetsAttemptsBeCounted(t *testing.T) {
	m, next, _ := remembering(1000)
	plain, counting := rule(t, "p fixed_window limit=1 window=1h"), rule(t, "c fixed_window limit=9 window=1h count_denied")
	for range 5 {
		var d limiter.Decision
		require.NoError(t, m.Take(context.Background(), []limiter.Check{check(plain, "a", 1), check(counting, "a", 1)}, &d))
	}
	require.EqualValues(t, 5, next.takes.Load())
}

// Precheck answers from memory like Take, without calls, and leaves the rest to TakeAfter.
func TestDeniedLook(t *testing.T) {
	m, next, clock := remembering(1000)
	l := rule(t, "r fixed_window limit=1 window=10s")
	var d limiter.Decision
	known := func(checks ...limiter.Check) bool {
		t.Helper()
		before := next.takes.Load()
		d.Reset(0)
		d.Allowed = true
		got := m.Precheck(checks, &d, time.UnixMicro(clock.Now())).Refused
		require.Equal(t, before, next.takes.Load())
		require.Equal(t, !got, d.Allowed)
		return got
	}
	require.False(t, known())
	require.False(t, known(check(l, "a", 1)))
	ask(t, m, check(l, "a", 1))
	ask(t, m, check(l, "a", 1))
	require.True(t, known(check(l, "a", 1)))
	require.Equal(t, limiter.SourceDenied, d.Results[0].Source)
	require.Equal(t, 10*time.Second, d.Results[0].RetryAfter)
	require.False(t, known(check(l, "b", 1)))
	require.True(t, known(check(l, "b", 1), check(l, "a", 1)), "one refused check is enough")
	clock.Set(10 * time.Second)
	require.False(t, known(check(l, "a", 1)))
}

// Memory never answers a call that an overdraft charges, and such a call ends what it knew of the
// key. What another node gives back counts soon.
func TestDeniedChargesOverdrafts(t *testing.T) {
	m, next, clock := remembering(1000)
	l := rule(t, "r token_bucket limit=1 window=1s burst=10 overdraft")
	f := func(cost int64, allowed bool, retry time.Duration, remembered bool) {
		t.Helper()
		before := next.takes.Load()
		d := ask(t, m, check(l, "a", cost))
		require.Equal(t, allowed, d.Allowed)
		require.Equal(t, retry, d.Results[0].RetryAfter)
		require.Equal(t, remembered, next.takes.Load() == before)
	}
	f(15, false, 15*time.Second, false)
	f(0, false, 5*time.Second, false)
	f(0, false, 5*time.Second, true)
	f(100, false, 115*time.Second, false)
	f(0, false, 105*time.Second, false)
	f(0, false, 105*time.Second, true)
	f(-50, false, 55*time.Second, false)
	f(0, false, 55*time.Second, false)
	f(-55, true, 0, false)
	f(0, true, 0, false)

	f(1, false, 2*time.Second, false)
	f(0, false, time.Second, false)
	require.True(t, ask(t, next, check(l, "a", -1)).Allowed, "on another node")
	f(0, false, time.Second, true)
	clock.Set(100 * time.Millisecond)
	f(0, true, 0, false)
}
