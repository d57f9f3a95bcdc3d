package limiter_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/pkg/limiter"
)

// combined returns a Combine over a shard that hangs, with one call in progress.
func combined(t *testing.T, flights int) (*limiter.Combine, *shard) {
	s := newShard()
	c := limiter.NewCombine(s, budget, flights, 0, nil)
	s.hang()
	go func() {
		var d limiter.Decision
		_ = c.Take(context.Background(), []limiter.Check{check(rule(t, "first fixed_window limit=1 window=1h"), "x", 1)}, &d)
	}()
	synctest.Wait()
	return c, s
}

// crowd starts as many batches as possible; one is already in progress.
func crowd(t *testing.T, c *limiter.Combine) {
	l := rule(t, "other fixed_window limit=1 window=1h")
	for i := range limiter.MaxBatchesUnanswered - 1 {
		go func() {
			var d limiter.Decision
			_ = c.Take(context.Background(), []limiter.Check{check(l, fmt.Sprint("other", i), 1)}, &d)
		}()
		pass(time.Millisecond)
		if i == limiter.MaxBatchesInFlight-2 {
			pass(budget) // these are late
		}
	}
}

// A batch lingers from its first call on, for any number of them; closing ends that.
func TestCombineLingers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const linger = 2 * time.Millisecond
		var mu sync.Mutex
		var sent []int
		c := limiter.NewCombine(newShard(), budget, limiter.MaxBatchesInFlight, linger, func(calls int) { mu.Lock(); defer mu.Unlock(); sent = append(sent, calls) })
		sizes := func(want ...int) {
			t.Helper()
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			require.Equal(t, want, sent)
			sent = nil
		}
		l := rule(t, "r fixed_window limit=1 window=1h")
		clients := 0
		var answered atomic.Int64
		arrive := func() {
			clients++
			name := fmt.Sprint("client", clients)
			go func() { require.True(t, ask(t, c, check(l, name, 1)).Allowed); answered.Add(1) }()
			synctest.Wait()
		}
		for range 3 {
			answered.Store(0)
			arrive()
			pass(linger / 2)
			arrive()
			pass(linger/2 - 1)
			sizes()
			pass(1)
			sizes(2)
			require.EqualValues(t, 2, answered.Load())
			pass(10 * linger)
		}
		arrive()
		arrive()
		c.Close()
		sizes(2)
		require.EqualValues(t, 4, answered.Load())
	})
}

// arrivals returns a function by which so many clients ask at once, and one that compares the sizes of
// the batches so far.
func arrivals(t *testing.T, shard limiter.Batcher, flights int) (arrive func(n int), sizes func(want ...int), end func()) {
	var mu sync.Mutex
	var sent []int
	c := limiter.NewCombine(shard, time.Minute, flights, 0, func(calls int) { mu.Lock(); defer mu.Unlock(); sent = append(sent, calls) })
	l := rule(t, "r fixed_window limit=1 window=1h")
	clients := 0
	arrive = func(n int) {
		for range n {
			clients++
			name := fmt.Sprint("client", clients)
			go func() { require.True(t, ask(t, c, check(l, name, 1)).Allowed) }()
		}
		synctest.Wait()
	}
	return arrive, func(want ...int) { t.Helper(); mu.Lock(); defer mu.Unlock(); require.Equal(t, want, sent) }, c.Close
}

// Over a long distance, a batch leaves before the previous one is answered, but not earlier
// than a usual round trip and Redis's time for it, unless it is large and only one is in
// progress, and at most so many at a time.
func TestCombineOverlapsLongRoundTrips(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShard()
		arrive, sizes, end := arrivals(t, s, 2)
		s.hang()
		arrive(1)
		arrive(10)
		sizes(1)
		pass(509 * time.Microsecond)
		sizes(1)
		pass(2 * time.Microsecond)
		sizes(1, 10)
		arrive(7)
		pass(3 * time.Millisecond)
		sizes(1, 10) // the most in progress
		s.resume()
		synctest.Wait()
		sizes(1, 10, 7)
		arrive(1)
		sizes(1, 10, 7, 1) // nothing is in progress, so nothing waits
		s.hang()
		arrive(1)
		arrive(31)
		sizes(1, 10, 7, 1, 1)
		arrive(1)
		sizes(1, 10, 7, 1, 1, 32) // one is in progress, and this one is large
		arrive(32)
		sizes(1, 10, 7, 1, 1, 32) // two are
		s.resume()
		synctest.Wait()
		end()
	})
}

// After a batch of one call the next leaves at once, but for the last place in flight. After a larger
// one, it waits for a usual round trip and Redis's time for all that are in progress.
func TestCombineSendsLoneCallsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		arrive, sizes, end := arrivals(t, &distant{trip: 20 * time.Millisecond, cost: func(int) time.Duration { return 0 }}, limiter.MaxBatchesInFlight)
		for range 3 {
			arrive(1)
		}
		sizes(1, 1, 1)
		arrive(10)
		pass(529 * time.Microsecond) // three calls are in progress
		sizes(1, 1, 1)
		pass(2 * time.Microsecond)
		sizes(1, 1, 1, 10)
		arrive(5)
		pass(19468 * time.Microsecond)
		sizes(1, 1, 1, 10) // the most in progress
		pass(2 * time.Microsecond)
		sizes(1, 1, 1, 10, 5) // the first three are answered, and it is late enough already
		arrive(7)
		pass(547 * time.Microsecond) // five calls are in progress, and ten were until a moment ago
		sizes(1, 1, 1, 10, 5)
		pass(2 * time.Microsecond)
		sizes(1, 1, 1, 10, 5, 7)
		end()
	})
}

func TestCombineBatchesWhileOneIsUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sizes []int
		s := newShard()
		c := limiter.NewCombine(s, budget, 1, 0, func(calls int) { sizes = append(sizes, calls) })
		l := rule(t, "r fixed_window limit=1 window=1h")
		s.hang()
		for i := range 1001 {
			go func() { require.True(t, ask(t, c, check(l, fmt.Sprint("client", i), 1)).Allowed) }()
			if i == 0 {
				synctest.Wait()
			}
		}
		synctest.Wait()
		s.resume()
		synctest.Wait()
		require.Equal(t, []int{1, 512, 488}, sizes)
		c.Close()
	})
}

func TestCombineLoneRequestDoesNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := limiter.NewCombine(newShard(), budget, limiter.MaxBatchesInFlight, 0, nil)
		defer c.Close()
		begin := time.Now()
		for range 10 {
			ask(t, c, check(rule(t, "r fixed_window limit=1 window=1h"), "a", 1))
		}
		require.Zero(t, time.Since(begin))
	})
}

// n identical calls get k grants, as if they had arrived one by one.
func TestCombineTwins(t *testing.T) {
	f := func(line string, callers int, cost int64, want ...int64) {
		t.Helper()
		synctest.Test(t, func(t *testing.T) {
			c, s := combined(t, 1)
			l := rule(t, line)
			var mu sync.Mutex
			var remaining []int64
			for range callers {
				go func() {
					d := ask(t, c, check(l, "a", cost))
					mu.Lock()
					defer mu.Unlock()
					require.Equal(t, d.Allowed, d.Results[0].Charged)
					if d.Allowed {
						remaining = append(remaining, d.Results[0].Remaining)
					} else {
						require.Positive(t, d.Results[0].RetryAfter)
					}
				}()
			}
			synctest.Wait()
			s.resume()
			synctest.Wait()
			slices.Sort(remaining)
			require.Equal(t, want, remaining)
			require.Equal(t, []string{fmt.Sprintf("%d × weir:{a}:r:%s", callers, l.Tag())}, s.batches[1], "one question")
			c.Close()
		})
	}
	f("r fixed_window limit=5 window=1h", 50, 1, 0, 1, 2, 3, 4)
	f("r sliding_window limit=5 window=1h", 5, 1, 0, 1, 2, 3, 4)
	f("r rolling_window limit=5 window=1h", 6, 1, 0, 1, 2, 3, 4)
	f("r rolling_window limit=5 window=1h storage=sorted_set", 2, 1, 3, 4)
	f("r token_bucket limit=5 window=1h burst=10", 50, 3, 1, 4, 7)
	f("r leaky_bucket limit=5 window=1h burst=2", 9, 1, 0, 1, 2)
	f("r rolling_window limit=5 window=1h min_interval=1s", 9, 1, 4)
}

// Identical requests share a call only while it stores no more than one request may.
func TestCombineTwinsOfASortedSet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, s := combined(t, 1)
		l := rule(t, "r rolling_window limit=5000 window=1h storage=sorted_set")
		for range 101 {
			go func() { require.True(t, ask(t, c, check(l, "a", 5)).Allowed) }()
		}
		synctest.Wait()
		s.resume()
		synctest.Wait()
		require.Equal(t, []string{"40 × weir:{a}:r:rs", "40 × weir:{a}:r:rs", "21 × weir:{a}:r:rs"}, s.batches[1])
		c.Close()
	})
}

// A rule with room left does not refuse twins that another rule refuses.
func TestCombineTwinsOfSeveralRules(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, s := combined(t, 1)
		s.answers = []limiter.Answer{{Fits: 3, Remaining: 1}, {Fits: 2, Retry: 1000}} // of five, and two were charged
		roomy, tight := rule(t, "roomy fixed_window limit=3 window=1h"), rule(t, "tight fixed_window limit=2 window=1h")
		var mu sync.Mutex
		var got []string
		for range 5 {
			go func() {
				d := ask(t, c, check(roomy, "a", 1), check(tight, "a", 1))
				a, b := d.Results[0], d.Results[1]
				mu.Lock()
				defer mu.Unlock()
				got = append(got, fmt.Sprint(d.Allowed, a.Allowed, a.Charged, a.Remaining, b.Allowed, b.Charged, b.Remaining))
			}()
		}
		synctest.Wait()
		s.resume()
		synctest.Wait()
		slices.Sort(got)
		refused := "false true false 1 false false 0"
		require.Equal(t, []string{refused, refused, refused, "true true true 1 true true 0", "true true true 2 true true 1"}, got)
		c.Close()
	})
}

// Calls that differ in any way are sent separately.
func TestCombineMergesOnlyTheSame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, s := combined(t, 1)
		l, again := rule(t, "r fixed_window limit=99 window=1h"), rule(t, "r fixed_window limit=99 window=1h")
		slot := rule(t, "c concurrency limit=99 window=1h")
		for _, checks := range [][]limiter.Check{
			{check(l, "a", 1)},
			{check(l, "a", 2)},                           // another cost
			{check(l, "a", 1)},                           // the same as the first
			{check(again, "a", 1)},                       // another rule document
			{check(l, "a", 1), check(l, "b", 1)},         // more checks
			{peek(check(l, "a", 1))},                     // a peek
			{check(slot, "a", 1)}, {check(slot, "a", 1)}, // each needs its own slot
		} {
			go ask(t, c, checks...)
			synctest.Wait() // in this order
		}
		s.resume()
		synctest.Wait()
		slices.Sort(s.batches[1])
		require.Equal(t, []string{
			"0 × weir:{a}:r:fw", "1 × weir:{a}:c:cc", "1 × weir:{a}:c:cc", "1 × weir:{a}:r:fw",
			"1 × weir:{a}:r:fw", "1 × weir:{a}:r:fw", "2 × weir:{a}:r:fw",
		}, s.batches[1])
		c.Close()
	})
}

func TestCombineKeepsItsBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, s := combined(t, limiter.MaxBatchesInFlight)
		crowd(t, c)
		checks := []limiter.Check{check(rule(t, "r fixed_window limit=1 window=1h"), "a", 1)}
		var d limiter.Decision
		begin := time.Now()
		require.ErrorIs(t, c.Take(t.Context(), checks, &d), limiter.ErrTimeout)
		require.Equal(t, budget, time.Since(begin))
		require.ErrorIs(t, c.Return(t.Context(), checks, &limiter.Decision{Results: []limiter.Result{{Charged: true}}}), limiter.ErrTimeout)
		require.Equal(t, 2*budget, time.Since(begin))

		ctx, cancel := context.WithCancel(t.Context())
		go func() { <-time.After(time.Millisecond); cancel() }()
		require.ErrorIs(t, c.Take(ctx, checks, &d), context.Canceled)
		require.Equal(t, 2*budget+time.Millisecond, time.Since(begin))

		s.resume()
		synctest.Wait()
		require.Len(t, s.batches, limiter.MaxBatchesUnanswered+1)
		require.Equal(t, []string{"return weir:{a}:r:fw 0"}, s.batches[limiter.MaxBatchesUnanswered], "a canceled call is not sent; a return still is")
		c.Close()
	})
}

func TestCombineGivesBackTheSlotOfAnAbandonedCall(t *testing.T) {
	f := func(closing bool) {
		synctest.Test(t, func(t *testing.T) {
			s := newShard()
			c := limiter.NewCombine(s, budget, limiter.MaxBatchesInFlight, 0, nil)
			l, counted := rule(t, "c concurrency limit=1 window=1h"), rule(t, "r fixed_window limit=9 window=1h")
			mine := check(l, "a", 1)
			mine.Slot = 7
			s.hang()
			var d limiter.Decision
			require.ErrorIs(t, c.Take(t.Context(), []limiter.Check{mine, check(counted, "a", 1)}, &d), limiter.ErrTimeout)
			if closing {
				go c.Close()
				synctest.Wait()
			}
			s.resume() // it takes the slot without a caller
			synctest.Wait()
			require.Equal(t, [][]string{{"1 × weir:{a}:c:cc"}, {"return weir:{a}:c:cc 7"}}, s.batches)
			require.EqualValues(t, 1, ask(t, s, peek(mine)).Results[0].Remaining)
			require.EqualValues(t, 8, ask(t, s, peek(check(counted, "a", 1))).Results[0].Remaining, "a caller may have relied on the charge")
			c.Close()
		})
	}
	f(false)
	f(true)
}

// A grant whose caller has left goes to a twin that still waits.
func TestCombineAbandonedTwin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &gate{shard: newShard(), open: make(chan struct{})}
		c := limiter.NewCombine(s, budget, 1, 0, nil)
		defer c.Close()
		l := rule(t, "r fixed_window limit=2 window=1h")
		go ask(t, c, check(l, "other", 1))
		synctest.Wait()
		leaving, leave := context.WithCancel(t.Context())
		var allowed atomic.Int64
		for _, ctx := range []context.Context{leaving, t.Context(), t.Context()} {
			go func() {
				var d limiter.Decision
				if c.Take(ctx, []limiter.Check{check(l, "a", 1)}, &d) == nil && d.Allowed {
					allowed.Add(1)
				}
			}()
		}
		synctest.Wait()
		s.answered = leave
		close(s.open)
		pass(2 * time.Millisecond)
		require.Equal(t, []string{"3 × weir:{a}:r:fw"}, s.batches[1])
		require.EqualValues(t, 2, allowed.Load())
	})
}

func TestCombineOverload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, s := combined(t, 1)
		l := rule(t, "r fixed_window limit=100000 window=1h")
		var passed atomic.Int64
		for range limiter.MaxQueue {
			go func() {
				if ask(t, c, check(l, "a", 1)).Allowed {
					passed.Add(1)
				}
			}()
		}
		synctest.Wait()
		var d limiter.Decision
		require.Equal(t, limiter.ErrOverloaded, c.Take(t.Context(), []limiter.Check{check(l, "a", 1)}, &d))
		s.resume()
		synctest.Wait()
		require.EqualValues(t, limiter.MaxQueue, passed.Load())
		require.True(t, ask(t, c, check(l, "a", 1)).Allowed, "the queue has room again")
		c.Close()
	})
}

func TestCombineCloseAnswersWhoWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, s := combined(t, 1)
		l := rule(t, "r fixed_window limit=100 window=1h")
		var passed atomic.Int64
		for range 10 {
			go func() {
				if ask(t, c, check(l, "a", 1)).Allowed {
					passed.Add(1)
				}
			}()
		}
		synctest.Wait()
		go c.Close()
		synctest.Wait()
		checks := []limiter.Check{check(l, "a", 1)}
		require.Equal(t, limiter.ErrClosed, c.Take(t.Context(), checks, &limiter.Decision{}))
		s.resume()
		synctest.Wait()
		require.EqualValues(t, 10, passed.Load())
		c.Close() // again
		require.Equal(t, limiter.ErrClosed, c.Return(t.Context(), checks, &limiter.Decision{Results: []limiter.Result{{Charged: true}}}))
	})
}

func TestCombineReturnsOnlyWhatWasCharged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShard()
		c := limiter.NewCombine(s, budget, limiter.MaxBatchesInFlight, 0, nil)
		l, shadow := rule(t, "r fixed_window limit=5 window=1h"), rule(t, "s fixed_window limit=1 window=1h shadow")
		checks := []limiter.Check{check(shadow, "a", 1), check(l, "a", 1)}
		ask(t, c, checks...)
		d := ask(t, c, checks...)
		require.True(t, d.Allowed)
		require.False(t, d.Results[0].Charged)
		require.NoError(t, c.Return(t.Context(), checks, d))
		require.NoError(t, c.Return(t.Context(), checks, &limiter.Decision{Results: make([]limiter.Result, 2)}))
		require.Equal(t, "return weir:{a}:r:fw 0", s.batches[2][0])
		require.Len(t, s.batches, 3, "nothing charged, nothing to return")
		require.EqualValues(t, 4, ask(t, c, peek(checks[1])).Results[0].Remaining)
		require.Zero(t, ask(t, c, peek(checks[0])).Results[0].Remaining)
		c.Close()
	})
}

// With many goroutines on few keys, exactly the limit passes.
func TestCombineExact(t *testing.T) {
	c := limiter.NewCombine(newShard(), time.Minute, limiter.MaxBatchesInFlight, 0, nil)
	defer c.Close()
	l, slot := rule(t, "r rolling_window limit=1000 window=1h"), rule(t, "c concurrency limit=300 window=1h")
	var passed, inFlight atomic.Int64
	var wg sync.WaitGroup
	for worker := range 64 {
		wg.Go(func() {
			for i := range 50 {
				if ask(t, c, check(l, "a", 1)).Allowed {
					passed.Add(1)
				}
				mine := check(slot, "a", 1)
				mine.Slot = uint64(worker*1000 + i)
				if ask(t, c, mine).Allowed {
					inFlight.Add(1)
				}
			}
		})
	}
	wg.Wait()
	require.EqualValues(t, 1000, passed.Load())
	require.EqualValues(t, 300, inFlight.Load())
}
