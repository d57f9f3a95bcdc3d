package limiter_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/pkg/limiter"
	"github.com/weir-edge/weir/pkg/limiter/memory"
)

// stack is the layers in front of one shard.
func stack(t *testing.T, s limiter.Batcher) *limiter.Fallback {
	c := limiter.NewCombine(s, budget, limiter.MaxBatchesInFlight, 0, nil)
	f := limiter.NewFallback(c, memory.New(memory.Config{}), func() int { return 2 }, nil)
	t.Cleanup(func() { f.Close(); c.Close() })
	return f
}

// What a store charges too late for a request that was refused is given back, once, and what it
// charges for one that passed by fallback stays.
func TestLateChargesOfRefusedRequests(t *testing.T) {
	f := func(name string, policy limiter.OnFailure, spent, allowed, returned bool, want int64) {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newShard()
				f := stack(t, s)
				l := onFailure(rule(t, "r fixed_window limit=10 window=1h"), policy)
				slot := rule(t, "c concurrency limit=9 window=1h")
				slot.OnFailure = limiter.Open
				checks := []limiter.Check{check(l, "a", 2), check(slot, "a", 1)}
				ask(t, s, check(l, "a", 4))
				if spent { // of this node's share
					require.NoError(t, f.TakeLocal(t.Context(), []limiter.Check{check(l, "a", 5)}, &limiter.Decision{}))
				}
				s.hang()
				d := ask(t, f, checks...)
				require.Equal(t, allowed, d.Allowed)
				giveBack := func() {
					if returned {
						require.NoError(t, f.Return(t.Context(), checks, d))
					}
				}
				giveBack()
				s.resume()
				pass(time.Second) // orphaned slots return too
				giveBack()
				giveBack()
				synctest.Wait()
				require.EqualValues(t, want, ask(t, s, peek(checks[0])).Results[0].Remaining)
				require.EqualValues(t, 9, ask(t, s, peek(checks[1])).Results[0].Remaining)
			})
		})
	}
	f("503", limiter.Closed, false, false, false, 6)
	f("429 by the share", limiter.Local, true, false, false, 6)
	f("passed", limiter.Open, false, true, false, 4)
	f("passed by the share", limiter.Local, false, true, false, 4)
	f("passed, then refused by another layer", limiter.Open, false, true, true, 6)
	f("passed by the share, then refused by another layer", limiter.Local, false, true, true, 6)
}

// The order in which a late answer and the refusal come does not matter.
func TestLateChargeBeforeTheRefusal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShard()
		f := stack(t, s)
		checks := []limiter.Check{check(onFailure(rule(t, "r fixed_window limit=10 window=1h"), limiter.Open), "a", 2)}
		s.hang()
		d := ask(t, f, checks...)
		s.resume()
		synctest.Wait()
		require.EqualValues(t, 8, ask(t, s, peek(checks[0])).Results[0].Remaining)
		for range 3 {
			require.NoError(t, f.Return(t.Context(), checks, d))
			synctest.Wait()
			require.EqualValues(t, 10, ask(t, s, peek(checks[0])).Results[0].Remaining)
		}
		ask(t, s, check(checks[0].Limit, "a", 5))
		require.NoError(t, f.Return(t.Context(), checks, d))
		synctest.Wait()
		require.EqualValues(t, 5, ask(t, s, peek(checks[0])).Results[0].Remaining, "once")
	})
}

// Another slot's refusal also returns what a slow slot charges after it was let pass by fallback.
func TestLateChargesOfSlotsThatWereRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shards, slots := map[string]*shard{}, bySlot{}
		for _, name := range []string{"hung", "slow"} {
			shards[name] = newShard()
			slots[name] = stack(t, shards[name])
		}
		s := limiter.NewSpread(slots, budget)
		wide := rule(t, "wide fixed_window limit=1000 window=744h")
		closed := onFailure(rule(t, "closed fixed_window limit=1000 window=744h"), limiter.Closed)
		shards["hung"].hang()
		for range 20 {
			shards["slow"].hang()
			for i := range 10 {
				go func() {
					checks := []limiter.Check{check(wide, "slow", int64(1+i%3)), check(closed, "hung", 1)}
					require.False(t, ask(t, s, checks...).Allowed)
				}()
			}
			pass(40 * time.Millisecond)
			shards["slow"].resume()
			pass(10 * time.Millisecond)
		}
		shards["hung"].resume()
		pass(time.Second)
		require.EqualValues(t, 1000, ask(t, shards["slow"], peek(check(wide, "slow", 1))).Results[0].Remaining)
		require.EqualValues(t, 1000, ask(t, shards["hung"], peek(check(closed, "hung", 1))).Results[0].Remaining)
	})
}

// Of identical requests, those that wait get the grants; what is charged for the others is
// theirs, and given back.
func TestLateChargesOfTwins(t *testing.T) {
	for _, leaving := range []int{0, 1, 2, 3, 4} {
		synctest.Test(t, func(t *testing.T) {
			s := &gate{shard: newShard(), open: make(chan struct{})}
			c := limiter.NewCombine(s, budget, 1, 0, nil)
			f := limiter.NewFallback(c, memory.New(memory.Config{}), func() int { return 1 }, nil)
			l := onFailure(rule(t, "r fixed_window limit=3 window=1h"), limiter.Closed)
			go ask(t, c, check(l, "other", 1))
			synctest.Wait()
			ctx, leave := context.WithCancel(t.Context())
			var allowed atomic.Int64
			for i := range 4 {
				ctx := ctx
				if i < 4-leaving {
					ctx = t.Context()
				}
				go func() {
					var d limiter.Decision
					require.NoError(t, f.Take(ctx, []limiter.Check{check(l, "a", 1)}, &d))
					if d.Allowed {
						allowed.Add(1)
					}
				}()
				synctest.Wait()
			}
			s.answered = leave
			close(s.open)
			pass(5 * time.Millisecond)
			require.Equal(t, "4 × weir:{a}:r:fw", s.batches[1][0])
			require.EqualValues(t, min(3, 4-leaving), allowed.Load())
			require.EqualValues(t, 3-allowed.Load(), ask(t, s.FullStore, peek(check(l, "a", 1))).Results[0].Remaining, "%d left", leaving)
			f.Close()
			c.Close()
			leave()
		})
	}
}

// Late batches hold up no others, until a silent master has MaxBatchesUnanswered of them. Then nothing more is
// sent.
func TestLateFlights(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		sent := 0
		s := newShard()
		c := limiter.NewCombine(s, budget, limiter.MaxBatchesInFlight, 0, func(calls int) { mu.Lock(); defer mu.Unlock(); sent += calls })
		l := rule(t, "r fixed_window limit=1 window=1h")
		clients := 0
		arrive := func(want int) {
			t.Helper()
			clients++
			name := fmt.Sprint("client", clients)
			go func() {
				var d limiter.Decision
				_ = c.Take(context.Background(), []limiter.Check{check(l, name, 1)}, &d)
			}()
			pass(time.Millisecond)
			mu.Lock()
			defer mu.Unlock()
			require.Equal(t, want, sent)
		}
		s.hang()
		for i := range limiter.MaxBatchesInFlight {
			arrive(i + 1)
		}
		pass(budget / 2)
		arrive(limiter.MaxBatchesInFlight)
		pass(budget / 2)
		for i := range limiter.MaxBatchesInFlight - 1 { // the slots are free
			arrive(limiter.MaxBatchesInFlight + 2 + i)
		}
		pass(budget)
		for range 30 {
			arrive(limiter.MaxBatchesUnanswered)
		}
		pass(budget) // these have left
		s.resume()
		pass(time.Second)
		arrive(limiter.MaxBatchesUnanswered + 1)
		c.Close()
	})
}

// A key that an operator has reset meanwhile is given back nothing: others may have been charged
// since.
func TestLateChargesBeforeAReset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &gate{shard: newShard(), open: make(chan struct{})}
		c := limiter.NewCombine(s, budget, 1, 0, nil)
		f := limiter.NewFallback(c, memory.New(memory.Config{}), func() int { return 1 }, nil)
		defer func() { f.Close(); c.Close() }()
		l := onFailure(rule(t, "r fixed_window limit=10 window=1h"), limiter.Closed)
		go ask(t, c, check(l, "other", 1))
		synctest.Wait()
		ctx, leave := context.WithCancel(t.Context())
		go func() {
			var d limiter.Decision
			require.NoError(t, f.Take(ctx, []limiter.Check{check(l, "a", 2)}, &d))
			require.False(t, d.Allowed)
		}()
		synctest.Wait()
		s.answered = func() { // charged, but not yet known here
			leave()
			require.NoError(t, s.FullStore.Reset(t.Context(), []limiter.Check{check(l, "a", 1)}))
			require.NoError(t, f.Reset(t.Context(), []limiter.Check{check(l, "a", 1)}))
			ask(t, s.FullStore, check(l, "a", 5))
		}
		close(s.open)
		pass(time.Second)
		require.EqualValues(t, 5, ask(t, s.FullStore, peek(check(l, "a", 1))).Results[0].Remaining)
	})
}
