package limiter_test

import (
	"context"
	"fmt"
	"math/rand"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/pkg/limiter"
)

// distant simulates a distant Redis in virtual time: it processes one batch after another, at
// the given cost, and its answer travels back.
type distant struct {
	trip time.Duration
	cost func(calls int) time.Duration // called under the mutex

	mu      sync.Mutex
	busy    time.Time // until when
	work    time.Duration
	batches int
	calls   int
	others  atomic.Int64 // batches of goroutines that do not ask
}

// Follow implements limiter.Batcher.
func (d *distant) Follow(context.Context, []*limiter.Call) {}

// Do implements limiter.Batcher.
func (d *distant) Do(_ context.Context, calls []*limiter.Call, by time.Time) (rest func()) {
	if !led() {
		d.others.Add(1)
	}
	return until(by, func() { d.decide(calls) })
}

func (d *distant) decide(calls []*limiter.Call) {
	time.Sleep(d.trip / 2)
	d.mu.Lock()
	cost := d.cost(len(calls))
	if now := time.Now(); d.busy.Before(now) {
		d.busy = now
	}
	d.busy = d.busy.Add(cost)
	d.work += cost
	d.batches++
	d.calls += len(calls)
	wait := time.Until(d.busy)
	d.mu.Unlock()
	time.Sleep(wait + d.trip/2)
	for _, c := range calls {
		c.Now, c.Answers = time.Now().UnixMicro(), append(c.Answers, limiter.Answer{Fits: 1, Remaining: time.Now().UnixMicro()})
	}
}

// The Redis time of a script call and of a decision in it: see TABLES.md.
const (
	callCost     = 5 * time.Microsecond
	decisionCost = 4 * time.Microsecond
)

// A node with 20,000 requests per second waits for about one round trip at any distance, in
// batches as large as over a short one. The times are virtual; -v prints them.
func TestLongWaysCostOneRoundTrip(t *testing.T) {
	const perSecond, requests = 20_000, 20_000
	table := []string{fmt.Sprintf("%-12s %10s %10s %16s %22s", "round trip", "median", "p99", "calls in a batch", "µs of Redis a decision")}
	l := rule(t, "r fixed_window limit=1000000 window=1h")
	var short float64
	for _, trip := range []time.Duration{150 * time.Microsecond, 350 * time.Microsecond, 1150 * time.Microsecond, 5150 * time.Microsecond} {
		synctest.Test(t, func(t *testing.T) {
			d := &distant{trip: trip, cost: func(calls int) time.Duration { return callCost + time.Duration(calls)*decisionCost }}
			c := limiter.NewCombine(d, time.Minute, limiter.MaxBatchesInFlight, 0, nil)
			random := rand.New(rand.NewSource(1))
			took := make([]time.Duration, requests)
			var all sync.WaitGroup
			for i := range requests {
				time.Sleep(time.Duration(random.ExpFloat64() * float64(time.Second) / perSecond))
				all.Go(func() {
					began := time.Now()
					require.True(t, ask(t, c, check(l, fmt.Sprint(i), 1)).Allowed)
					took[i] = time.Since(began)
				})
			}
			all.Wait()
			c.Close()
			slices.Sort(took)
			median, p99 := took[requests/2], took[requests*99/100]
			batch, cost := float64(d.calls)/float64(d.batches), float64(d.work.Microseconds())/requests
			table = append(table, fmt.Sprintf("%-12v %10v %10v %16.1f %22.2f", trip, median.Round(time.Microsecond), p99.Round(time.Microsecond), batch, cost))
			if short == 0 {
				short = batch
			}
			require.GreaterOrEqual(t, batch, short, "batches are no smaller than on a short way")
			require.LessOrEqual(t, p99, trip*3/2+700*time.Microsecond, "%v", trip)
		})
	}
	t.Log("\n" + strings.Join(table, "\n"))
}

// With a single processor, the call that wakes the Combine is the first of many requests that
// are ready to run.
func TestCombineWaitsForRequestsThatAreReady(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	const requests = 20
	var first atomic.Int64
	c := limiter.NewCombine(newShard(), time.Minute, 1, 0, func(calls int) { first.CompareAndSwap(0, int64(calls)) })
	defer c.Close()
	l := rule(t, "r fixed_window limit=100 window=1h")
	largest := 0
	for range 10 { // the scheduler may interrupt a turn
		first.Store(0)
		start := make(chan struct{})
		var all sync.WaitGroup
		for i := range requests {
			all.Go(func() {
				<-start
				ask(t, c, check(l, fmt.Sprint("client", i), 1))
			})
		}
		runtime.Gosched() // all of them wait now
		close(start)
		all.Wait()
		largest = max(largest, int(first.Load()))
	}
	require.Greater(t, largest, 1, "calls in a first batch")
}
