package limiter_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/pkg/limiter"
	"github.com/weir-edge/weir/pkg/limiter/memory"
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

// The slot that refused last is asked alone for some seconds: what it refuses is charged nowhere
// else, whatever passed meanwhile.
func TestSpreadAsksFirstWhatRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		next := &counted{next: memory.New(memory.Config{})}
		shared, own := rule(t, "shared fixed_window limit=20 window=1h"), rule(t, "own fixed_window limit=1 window=1s")
		s := limiter.NewSpread(next, time.Minute)
		for s.ShareATime(check(shared, "tenant", 1), check(own, "a", 1), check(own, "b", 1)) {
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
		time.Sleep(time.Millisecond)
		f("a", true, 2, 0)
		f("a", false, 2, 1) // nothing is known of the client yet
		for i := range 50_000 {
			ask(t, s, check(shared, fmt.Sprint("elsewhere", i), 1), check(own, fmt.Sprint("foreign", i), 1))
		}
		for second := range 5 {
			for range 80 {
				f("a", false, 1, 0)
			}
			f(fmt.Sprint("other", second), true, 2, 0)
			time.Sleep(time.Second)
			f("a", true, 2, 0)
		}
		require.EqualValues(t, 20-11, left())
		for range 6 { // it behaves
			time.Sleep(time.Second)
			f("a", true, 2, 0)
		}
		f("a", false, 2, 1)
		require.EqualValues(t, 3, left())

		// The shared slot is asked first while it refuses.
		for second := range 3 {
			f(fmt.Sprint("another", second), true, 2, 0)
		}
		f("b", false, 2, 1)
		for range 80 {
			f("b", false, 1, 0)
		}
		require.NoError(t, s.Reset(t.Context(), []limiter.Check{check(shared, "tenant", 1)}))
		for range 7 {
			time.Sleep(time.Second)
			f("b", true, 2, 0)
		}
		f("b", false, 2, 1)
		f("b", false, 1, 0)
		require.EqualValues(t, 13, left())
	})
}

// bySlot is a store for each subject.
type bySlot map[string]limiter.FullStore

func (b bySlot) of(checks []limiter.Check) limiter.FullStore {
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
		time.Sleep(time.Millisecond)
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
		err := s.Take(context.Background(), checks, &d)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NotErrorIs(t, err, limiter.ErrTimeout, "the other shard has not had its whole budget")
		require.False(t, d.Allowed)
		require.Equal(t, budget, time.Since(began))
		shards["a"].resume()
		synctest.Wait()
		require.EqualValues(t, 2, ask(t, s, peek(checks[1])).Results[0].Remaining, "what the first slot charged is returned")
	})
}

// late answers after a time.
type late struct {
	limiter.FullStore
	after time.Duration
}

func (l *late) Take(ctx context.Context, checks []limiter.Check, d *limiter.Decision) error {
	select {
	case <-time.After(l.after):
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	err := l.FullStore.Take(ctx, checks, d)
	time.Sleep(l.after) // the way back
	return err
}

func (l *late) Return(ctx context.Context, checks []limiter.Check, d *limiter.Decision) error {
	time.Sleep(l.after)
	return l.FullStore.Return(ctx, checks, d)
}

// A slow slot that is asked first leaves the others the time to refuse.
func TestSpreadAsksTheOthersInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slots, stores := bySlot{}, map[string]*late{}
		for _, name := range []string{"client", "tenant"} {
			stores[name] = &late{memory.New(memory.Config{}), time.Millisecond}
			f := limiter.NewFallback(stores[name], memory.New(memory.Config{}), func() int { return 1 }, func(err error) { t.Error(name, err) })
			defer f.Close()
			slots[name] = f
		}
		s := limiter.NewSpread(slots, budget)
		tenant, own := rule(t, "tenant fixed_window limit=3 window=1h"), rule(t, "own fixed_window limit=1 window=1s")
		checks := []limiter.Check{check(tenant, "tenant", 1), check(own, "client", 1)}
		require.True(t, ask(t, s, checks...).Allowed)
		require.False(t, ask(t, s, checks...).Allowed)
		ask(t, s, check(tenant, "tenant", 2))
		time.Sleep(time.Second)
		stores["client"].after = budget/2 - time.Microsecond
		began := time.Now()
		d := ask(t, s, checks...)
		require.False(t, d.Allowed)
		require.Equal(t, limiter.SourceMemory, d.Results[0].Source)
		require.LessOrEqual(t, time.Since(began), budget)
		time.Sleep(budget) // what was charged is returned
	})
}

// A client whose own rule passes some requests between its bursts does not lock a rule that it
// shares with others.
func TestSpreadKnowsWhoRefusesAfterPasses(t *testing.T) {
	for _, rate := range []int{10, 100} {
		for _, passes := range []int{1, 7} {
			t.Run(fmt.Sprint(rate, " per second, ", passes, " before a burst"), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					store := &late{memory.New(memory.Config{}), time.Millisecond}
					shared := rule(t, "shared fixed_window limit=300 window=1s")
					own := rule(t, fmt.Sprintf("own token_bucket limit=%d window=1s burst=10", rate))
					s := limiter.NewSpread(store, time.Second)
					m := limiter.NewDenied(s, 100_000, s.Returns())
					passed := func(client string) bool {
						var d limiter.Decision
						_ = m.Take(context.Background(), []limiter.Check{check(shared, "tenant", 1), check(own, client, 1)}, &d)
						return d.Allowed
					}
					end := time.Now().Add(10 * time.Second)
					var attack sync.WaitGroup
					attack.Go(func() {
						for time.Now().Before(end) {
							time.Sleep(75 * time.Millisecond)
							for range passes {
								passed("attacker")
							}
							var burst sync.WaitGroup
							for range 600 {
								burst.Go(func() { passed("attacker") })
							}
							burst.Wait()
						}
					})
					refused, n := 0, 0
					for ; time.Now().Before(end); n++ {
						time.Sleep(5 * time.Millisecond)
						if !passed(fmt.Sprint("other", n)) {
							refused++
						}
					}
					attack.Wait()
					t.Logf("%d of %d requests of others refused", refused, n)
					require.LessOrEqual(t, refused, n/50)
				})
			})
		}
	}
}

// failsToReturn is a store that takes but cannot return.
type failsToReturn struct{ limiter.FullStore }

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

// A refusal is StoreUnavailable only if no exhausted limit explains it.
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
		require.Equal(t, unavailable, d.StoreUnavailable)
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

// A slot that refused lately is not asked alone if another must charge an overdraft, which stays
// charged.
func TestSpreadChargesOverdrafts(t *testing.T) {
	s := limiter.NewSpread(memory.New(memory.Config{}), time.Minute)
	tight := rule(t, "tight fixed_window limit=1 window=1h")
	owing := rule(t, "owing fixed_window limit=10 window=1h overdraft")
	require.True(t, ask(t, s, check(tight, "a", 1)).Allowed)
	for range 3 {
		require.False(t, ask(t, s, check(tight, "a", 1), check(owing, "b", 4)).Allowed)
	}
	require.False(t, ask(t, s, check(owing, "b", -1)).Allowed, "12 of 10 were charged")
	require.True(t, ask(t, s, check(owing, "b", -1)).Allowed)
}
