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

// atRate makes so many requests of different clients per second, at random moments, and returns how
// long they took, sorted.
func atRate(t *testing.T, d *distant, perSecond, requests int) []time.Duration {
	l := rule(t, "r fixed_window limit=1000000 window=1h")
	c := limiter.NewCombine(d, time.Minute, limiter.MaxBatchesInFlight, 0, nil)
	defer c.Close()
	random := rand.New(rand.NewSource(1))
	took := make([]time.Duration, requests)
	var all sync.WaitGroup
	for i := range requests {
		time.Sleep(time.Duration(random.ExpFloat64() * float64(time.Second) / float64(perSecond)))
		all.Go(func() {
			began := time.Now()
			require.True(t, ask(t, c, check(l, fmt.Sprint(i), 1)).Allowed)
			took[i] = time.Since(began)
		})
	}
	all.Wait()
	slices.Sort(took)
	return took
}

func scriptCost(calls int) time.Duration { return callCost + time.Duration(calls)*decisionCost }

// A node with 20,000 requests per second waits for about one round trip at any distance, in
// batches as large as over a short one. The times are virtual; -v prints them.
func TestLongWaysCostOneRoundTrip(t *testing.T) {
	const requests = 20_000
	table := []string{fmt.Sprintf("%-12s %10s %10s %16s %22s", "round trip", "median", "p99", "calls in a batch", "µs of Redis a decision")}
	var short float64
	for _, trip := range []time.Duration{150 * time.Microsecond, 350 * time.Microsecond, 1150 * time.Microsecond, 5150 * time.Microsecond} {
		synctest.Test(t, func(t *testing.T) {
			d := &distant{trip: trip, cost: scriptCost}
			took := atRate(t, d, 20_000, requests)
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

// At everyday rates most requests wait for nothing but their own round trip.
func TestEverydayRequestsDoNotWaitForOthers(t *testing.T) {
	const requests = 10_000
	for _, trip := range []time.Duration{150 * time.Microsecond, 350 * time.Microsecond} {
		synctest.Test(t, func(t *testing.T) {
			took := atRate(t, &distant{trip: trip, cost: scriptCost}, 5_000, requests)
			require.Equal(t, trip+scriptCost(1), took[requests/2], "the median")
		})
	}
}

// instant is a shard that answers without waiting, unless it is held.
type instant struct{ held chan struct{} }

// Follow implements limiter.Batcher.
func (i *instant) Follow(context.Context, []*limiter.Call) {}

// Do implements limiter.Batcher.
func (i *instant) Do(_ context.Context, calls []*limiter.Call, _ time.Time) (rest func()) {
	<-i.held
	for _, c := range calls {
		c.Now, c.Answers = time.Now().UnixMicro(), append(c.Answers, limiter.Answer{Fits: 1})
	}
	return nil
}

// A request that leads lets those that are ready join its batch if the last batch had several calls.
// Otherwise it does not yield: that would wake a thread for nothing.
func TestCombineWaitsForRequestsThatAreReady(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	l := rule(t, "r fixed_window limit=1000 window=1h")
	largest := func(crowd int) (size int) {
		synctest.Test(t, func(t *testing.T) {
			i := &instant{make(chan struct{})}
			c := limiter.NewCombine(i, time.Minute, 1, 0, func(calls int) { size = max(size, calls) })
			defer c.Close()
			for n := range crowd {
				go ask(t, c, check(l, fmt.Sprint("crowd", n), 1))
			}
			synctest.Wait() // one leads, the others wait
			close(i.held)
			synctest.Wait()
			size = 0
			start := make(chan struct{})
			for n := range 20 {
				go func() {
					<-start
					ask(t, c, check(l, fmt.Sprint("client", n), 1))
				}()
			}
			synctest.Wait()
			close(start)
			synctest.Wait()
		})
		return size
	}
	alone, joined := 20, 0
	for range 10 { // the scheduler may interrupt a turn
		alone, joined = min(alone, largest(1)), max(joined, largest(3))
	}
	require.Equal(t, 1, alone, "calls in a batch after a batch of one")
	require.Greater(t, joined, 1, "calls in a batch after one of several")
}
