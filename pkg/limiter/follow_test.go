package limiter_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/pkg/limiter"
)

// away is a shard that leaves a subject to another shard, which answers when opened.
type away struct {
	*shard
	open  chan struct{}
	other *shard
}

func (a *away) Do(ctx context.Context, calls []*limiter.Call, by time.Time) (rest func()) {
	var here []*limiter.Call
	for _, c := range calls {
		if string(limiter.Subject(c.Checks[0].Key)) == "moved" {
			c.Elsewhere = limiter.ErrReply
		} else {
			here = append(here, c)
		}
	}
	return a.shard.Do(ctx, here, by)
}

func (a *away) Follow(ctx context.Context, calls []*limiter.Call) {
	<-a.open
	a.other.decide(ctx, calls)
}

// A call that another shard has to answer delays no other, and this shard is not at fault if it
// takes too long.
func TestCombineFollowsBesideItsFlights(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, slot := rule(t, "r fixed_window limit=9 window=1h"), rule(t, "c concurrency limit=9 window=1h")
		moved := []limiter.Check{check(l, "moved", 1), check(slot, "moved", 1)}
		a := &away{newShard(), make(chan struct{}), newShard()}
		c := limiter.NewCombine(a, budget, 1, 0, nil)
		b := limiter.NewBreaker(c, budget, nil, nil)
		defer b.Close()
		for range 10 {
			err := b.Take(t.Context(), moved, &limiter.Decision{})
			require.ErrorIs(t, err, limiter.ErrElsewhere)
			require.ErrorIs(t, err, limiter.ErrTimeout)
			require.True(t, ask(t, b, check(rule(t, "r fixed_window limit=99 window=1h"), "stays", 1)).Allowed)
		}
		require.False(t, b.Open())
		go c.Close()
		synctest.Wait()
		close(a.open)
		c.Close()
		require.EqualValues(t, 0, ask(t, a.other, peek(moved[0])).Results[0].Remaining, "a caller may have relied on the charge")
		require.EqualValues(t, 9, ask(t, a.other, peek(moved[1])).Results[0].Remaining, "slots return")
	})
}
