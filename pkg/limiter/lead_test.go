package limiter_test

import (
	"context"
	"fmt"
	"math/rand"
	"runtime/debug"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/pkg/limiter"
)

// road is a shard on which a test lets each round trip arrive.
type road struct {
	trips chan *trip
}

type trip struct {
	subjects []string
	by       time.Time
	led      bool // by a goroutine that asks
	arrive   chan struct{}
}

// Follow implements limiter.Batcher.
func (r *road) Follow(context.Context, []*limiter.Call) {}

// Do implements limiter.Batcher.
func (r *road) Do(_ context.Context, calls []*limiter.Call, by time.Time) (rest func()) {
	t := &trip{by: by, led: led(), arrive: make(chan struct{})}
	for _, c := range calls {
		t.subjects = append(t.subjects, string(limiter.Subject(c.Checks[0].Key)))
	}
	r.trips <- t
	return until(by, func() {
		<-t.arrive
		for _, c := range calls {
			c.Now, c.Answers = time.Now().UnixMicro(), append(c.Answers, limiter.Answer{Fits: 1})
		}
	})
}

func led() bool { return strings.Contains(string(debug.Stack()), "Combine).Take") }

// A goroutine that asks makes the round trip, returns once its own call is answered, and hands the
// queue to the first that waits and may lead, or to a new goroutine.
func TestCombineLeaderHandsOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &road{make(chan *trip, 10)}
		c := limiter.NewCombine(r, budget, 1, 0, nil)
		l := rule(t, "r fixed_window limit=9 window=1h")
		ends := context.WithoutCancel(t.Context())
		mayEnd, cancel := context.WithCancel(ends)
		defer cancel()
		var mu sync.Mutex
		var served []string
		take := func(ctx context.Context, name string) {
			go func() {
				var d limiter.Decision
				require.NoError(t, c.Take(ctx, []limiter.Check{check(l, name, 1)}, &d))
				mu.Lock()
				defer mu.Unlock()
				served = append(served, name)
			}()
			pass(time.Millisecond)
		}
		next := func(led bool, subjects ...string) *trip {
			t.Helper()
			synctest.Wait()
			got := <-r.trips
			require.Equal(t, subjects, got.subjects)
			require.Equal(t, led, got.led)
			require.Equal(t, led, !got.by.IsZero())
			return got
		}
		arrive := func(trip *trip, left int) {
			t.Helper()
			close(trip.arrive)
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			require.Len(t, served, left)
		}

		began := time.Now()
		take(ends, "a")
		a := next(true, "a")
		require.Equal(t, began.Add(budget), a.by)
		take(mayEnd, "b") // it must leave when its context ends
		take(ends, "c")
		take(ends, "d")
		arrive(a, 1)
		bcd := next(true, "b", "c", "d")
		require.Equal(t, began.Add(2*time.Millisecond+budget), bcd.by, "what is left to c")
		take(mayEnd, "e")
		arrive(bcd, 4)
		e := next(false, "e")
		take(ends, "f")
		pass(budget/2 + time.Millisecond) // too little is left
		arrive(e, 5)
		arrive(next(false, "f"), 6)
		take(ends, "g")
		arrive(next(true, "g"), 7)
		c.Close()
	})
}

// However many wait, a leader returns the moment its own answer is there, and all of them are
// served within two round trips.
func TestCombineStarvesNoLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const perSecond, requests, trip = 8_000, 20_000, time.Millisecond
		s := &distant{trip: trip, cost: func(calls int) time.Duration { return callCost + time.Duration(calls)*decisionCost }}
		c := limiter.NewCombine(s, budget, 1, 0, nil)
		l := rule(t, "r fixed_window limit=1000000 window=1h")
		random := rand.New(rand.NewSource(1))
		var all sync.WaitGroup
		for i := range requests {
			time.Sleep(time.Duration(random.ExpFloat64() * float64(time.Second) / perSecond))
			all.Go(func() {
				began := time.Now()
				d := ask(t, c, check(l, fmt.Sprint(i), 1))
				require.Equal(t, time.Now().UnixMicro(), d.Results[0].Remaining, "when the answer came")
				require.LessOrEqual(t, time.Since(began), 2*trip+time.Millisecond)
			})
		}
		all.Wait()
		c.Close()
		require.Greater(t, s.batches, 100)
		require.Zero(t, s.others.Load())
	})
}

// A caller that is chosen to lead just when its budget ends hands the queue on.
func TestCombineHandsOnWhatItsLeaderLeaves(t *testing.T) {
	s := newShard()
	s.answers = []limiter.Answer{{Fits: 1}}
	c := limiter.NewCombine(s, 100*time.Microsecond, 1, 0, nil)
	l := rule(t, "r fixed_window limit=1000000 window=1h")
	var all sync.WaitGroup
	for worker := range 64 {
		all.Go(func() {
			for i := range 100 {
				var d limiter.Decision
				_ = c.Take(context.Background(), []limiter.Check{check(l, fmt.Sprint(worker, " ", i), 1)}, &d)
			}
		})
	}
	all.Wait()
	c.Close() // the queue empties
}
