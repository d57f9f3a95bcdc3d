package limiter_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/pkg/limiter"
	"github.com/weir-edge/weir/pkg/limiter/memory"
)

// broken is a Breaker over a store that fails while err is set, in a synctest bubble.
type broken struct {
	*limiter.Breaker
	next   *counted
	probes atomic.Int64
	back   atomic.Bool // the probe succeeds
	states []bool
}

func newBroken(t *testing.T) *broken {
	b := &broken{next: &counted{next: memory.New(memory.Config{}), err: errors.New("connection refused")}}
	b.Breaker = limiter.NewBreaker(b.next, 0, func(context.Context) error {
		b.probes.Add(1)
		if b.back.Load() {
			return nil
		}
		return b.next.err
	}, func(err error) { b.states = append(b.states, err == nil) })
	t.Cleanup(b.Close)
	return b
}

// try calls Take and expects want.
func (b *broken) try(t *testing.T, want error) {
	t.Helper()
	var d limiter.Decision
	err := b.Take(context.Background(), []limiter.Check{check(rule(t, "r fixed_window limit=100 window=1h"), "a", 1)}, &d)
	if want == nil {
		require.NoError(t, err)
		return
	}
	require.ErrorIs(t, err, want)
}

// pass advances the clock by d and waits until everything settles.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func TestBreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroken(t)
		for range 3 {
			b.try(t, b.next.err)
		}
		require.Equal(t, []bool{false}, b.states)

		calls := b.next.takes.Load()
		for range 100 {
			b.try(t, limiter.ErrBroken)
		}
		ctx := context.Background()
		require.ErrorIs(t, b.Return(ctx, nil, &limiter.Decision{}), limiter.ErrBroken)
		require.Equal(t, calls, b.next.takes.Load(), "an open breaker makes no calls")
		require.Zero(t, b.next.returns.Load())
		require.ErrorIs(t, b.Reset(ctx, []limiter.Check{{}}), b.next.err, "an operator sees the error")

		pass(time.Second)
		require.EqualValues(t, 20, b.probes.Load(), "one every 50ms")
		b.try(t, limiter.ErrBroken)

		b.next.err = nil
		b.back.Store(true)
		pass(51 * time.Millisecond)
		b.try(t, nil)
		require.Equal(t, []bool{false, true}, b.states)
		pass(time.Second)
		require.EqualValues(t, 21, b.probes.Load(), "a closed breaker does not probe")

		// The count starts again.
		b.next.err = limiter.ErrTimeout
		b.back.Store(false)
		for range 3 {
			b.try(t, limiter.ErrTimeout)
		}
		b.try(t, limiter.ErrBroken)
		require.Equal(t, []bool{false, true, false}, b.states)
	})
}

// A shard that is down reports a changed cause once.
func TestBreakerReportsAnotherCause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var heard []string
		var cause atomic.Pointer[error]
		is := func(err error) { cause.Store(&err) }
		is(errors.New("connection reset by peer"))
		b := limiter.NewBreaker(nil, 0, func(context.Context) error { return *cause.Load() }, func(err error) { heard = append(heard, fmt.Sprint(err)) })
		defer b.Close()
		b.Trip(*cause.Load())
		pass(time.Second)
		require.Equal(t, []string{"connection reset by peer"}, heard)
		is(errors.New("WRONGPASS"))
		pass(time.Second)
		is(nil)
		pass(time.Second)
		require.Equal(t, []string{"connection reset by peer", "WRONGPASS", "<nil>"}, heard)
	})
}

func TestBreakerCountsFailuresInARow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroken(t)
		// Neither an error reply nor a canceled caller means that the shard is failing.
		for _, harmless := range []error{nil, fmt.Errorf("%w: WRONGTYPE", limiter.ErrReply), fmt.Errorf("%w", context.Canceled)} {
			for range 5 {
				b.next.err = limiter.ErrTimeout
				b.try(t, limiter.ErrTimeout)
				b.try(t, limiter.ErrTimeout)
				b.next.err = harmless
				b.try(t, harmless)
			}
		}
		require.Empty(t, b.states)

		// A caller that had less time than the budget says nothing about the shard.
		for _, err := range []error{limiter.ErrTimeout, limiter.ErrTimeout, context.DeadlineExceeded} {
			b.next.err = err
			b.try(t, err)
		}
		require.Empty(t, b.states)
		b.next.err = limiter.ErrTimeout
		b.try(t, limiter.ErrTimeout)
		require.Equal(t, []bool{false}, b.states)
	})
}

func TestBreakerOpensOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroken(t)
		for range 50 {
			go func() {
				var d limiter.Decision
				_ = b.Take(context.Background(), []limiter.Check{{}}, &d)
			}()
		}
		synctest.Wait()
		require.Equal(t, []bool{false}, b.states)
		pass(time.Second)
		require.EqualValues(t, 20, b.probes.Load(), "a single goroutine probes")
	})
}

func TestBreakerCloseEndsTheProbing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroken(t)
		for range 3 {
			b.try(t, b.next.err)
		}
		pass(120 * time.Millisecond)
		b.Close()
		pass(time.Second)
		require.EqualValues(t, 2, b.probes.Load())
	}) // the bubble shows that no goroutine is left
}

// The callers of one round trip fail together, which counts as one failure.
func TestBreakerCountsRoundTrips(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const budget = 25 * time.Millisecond
		next := &counted{err: limiter.ErrTimeout}
		b := limiter.NewBreaker(next, budget, func(context.Context) error { return next.err }, nil)
		t.Cleanup(b.Close)
		checks := []limiter.Check{check(rule(t, "r fixed_window limit=100 window=1h"), "a", 1)}
		take := func() error { return b.Take(context.Background(), checks, &limiter.Decision{}) }
		fail := func() {
			for range 100 {
				require.ErrorIs(t, take(), limiter.ErrTimeout)
			}
		}
		fail()
		pass(budget)
		fail()
		require.False(t, b.Open())
		pass(budget)
		require.ErrorIs(t, take(), limiter.ErrTimeout)
		require.True(t, b.Open())
	})
}
