// Package proof checks the oracle against the limiter's own algorithms: it must never
// accuse them, whatever the network does, and must accuse them once they are broken.
package proof

import (
	"container/heap"
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/loadtest/xk6-weir/oracle"
	"github.com/weir-edge/weir/pkg/limiter"
	"github.com/weir-edge/weir/pkg/limiter/memory"
)

// world is one key of one rule under load, through a network with delays.
type world struct {
	limit *limiter.Limit // what the limiter enforces
	rule  oracle.Rule    // what the oracle was told
	fresh bool
	// before is how many requests the limiter sees before the oracle exists.
	before int
	// offset is how far the limiter's clock is from the oracle's.
	offset, clockError time.Duration
	// delay is the longest that a request takes each way; one in stragglers takes up to
	// straggle.
	delay, straggle time.Duration
	stragglers      int
	// pause is the mean time between two requests.
	pause    time.Duration
	requests int
	// lost is how many in a thousand the client gives up, decided or not.
	lost int
	cost int64
	// hold is the shortest time that a request takes at the origin, and spare the
	// longest addition.
	hold, spare time.Duration
	// retry changes the limiter's retry-after.
	retry func(seconds int64) int64
	// bots return exactly when told, in addition to random arrivals.
	bots int
	// open passes a refused request: one in this many.
	open int
	// shut refuses a request that would pass: one in this many.
	shut int
	seed uint64
}

type event struct {
	at int64
	do func()
}

type agenda []event

func (a agenda) Len() int           { return len(a) }
func (a agenda) Less(i, j int) bool { return a[i].at < a[j].at }
func (a agenda) Swap(i, j int)      { a[i], a[j] = a[j], a[i] }
func (a *agenda) Push(e any)        { *a = append(*a, e.(event)) }
func (a *agenda) Pop() any {
	last := (*a)[len(*a)-1]
	*a = (*a)[:len(*a)-1]
	return last
}

// run plays the world and returns the report's only line.
func (w *world) run(t require.TestingT) oracle.Line {
	random := rand.New(rand.NewPCG(w.seed, 1))
	between := func(least, most time.Duration) int64 {
		if most <= least {
			return least.Microseconds()
		}
		return least.Microseconds() + random.Int64N((most-least).Microseconds()+1)
	}
	epoch := time.Date(2026, 11, 21, 9, 0, 0, 0, time.UTC).UnixMicro() + random.Int64N(int64(time.Hour/time.Microsecond))
	now := epoch
	var todo agenda
	after := func(us int64, do func()) { heap.Push(&todo, event{now + us, do}) }

	store := memory.New(memory.Config{Clock: func() int64 { return now + w.offset.Microseconds() }})
	ctx := context.Background()
	var slots uint64
	take := func() (*limiter.Decision, []limiter.Check) {
		slots++
		checks := []limiter.Check{{Limit: w.limit, Key: []byte("k"), Cost: w.cost, Slot: slots}}
		d := &limiter.Decision{}
		require.NoError(t, store.Take(ctx, checks, d))
		return d, checks
	}
	for range w.before {
		take()
	}
	judge := oracle.New(oracle.Options{
		ClockError: max(w.clockError, time.Nanosecond), Fresh: w.fresh, Now: func() (int64, int64) { return now, now },
		Release: w.spare + time.Second,
	})
	require.NoError(t, judge.Declare(w.rule, 0))

	var send func(bot bool)
	returns := 3 * w.requests // of all bots
	send = func(bot bool) {
		if bot {
			if returns--; returns < 0 {
				return
			}
		}
		ticket, err := judge.Begin("eu-west", w.rule.ID, "k", w.cost)
		require.NoError(t, err)
		most := w.delay
		if w.stragglers > 0 && random.IntN(w.stragglers) == 0 {
			most = w.straggle
		}
		there, back := between(0, most), between(0, most)
		held := int64(0)
		if w.limit.Algorithm == limiter.Concurrency {
			held = between(w.hold, w.hold+w.spare)
		}
		lost := random.IntN(1000) < w.lost
		gaveUp := int64(0)
		if lost {
			gaveUp = between(0, 2*most)
			after(gaveUp, func() { ticket.End(oracle.Answer{Outcome: oracle.Unknown}) })
			if random.IntN(2) == 0 {
				return // it never arrives
			}
		}
		after(there, func() {
			d, checks := take()
			answer := oracle.Answer{Outcome: oracle.Admitted, RetryAfter: -1, Only: true}
			allowed := d.Allowed
			if !allowed && w.open > 0 && random.IntN(w.open) == 0 {
				allowed = true
			}
			if allowed && w.shut > 0 && random.IntN(w.shut) == 0 {
				allowed = false
			}
			if !allowed {
				held = 0
				wait := d.RetryAfter(checks)
				answer.Outcome = oracle.Refused
				answer.RetryAfter = max(1, int64((wait+time.Second-1)/time.Second))
				if w.retry != nil {
					answer.RetryAfter = w.retry(answer.RetryAfter)
				}
				if bot {
					after(back+max(1, int64(wait/time.Microsecond)-back/2), func() { send(true) })
				}
			} else {
				if bot {
					after(back+1, func() { send(true) })
				}
				if w.limit.Algorithm == limiter.Concurrency {
					late := between(0, time.Second)
					after(held+late, func() { require.NoError(t, store.Return(ctx, checks, d)) })
				}
			}
			if !lost {
				after(held+back, func() { ticket.End(answer) })
			}
		})
	}
	at := int64(0)
	for range w.requests {
		at += int64(random.ExpFloat64() * float64(w.pause.Microseconds()))
		after(at, func() { send(false) })
	}
	end := epoch + at
	for range w.bots {
		after(between(0, w.pause), func() { send(true) })
	}
	for len(todo) > 0 && todo[0].at <= end {
		e := heap.Pop(&todo).(event)
		now = e.at
		e.do()
	}
	judge.Finish()
	report := judge.Report()
	require.LessOrEqual(t, len(report), 1)
	if len(report) == 0 {
		return oracle.Line{}
	}
	return report[0]
}

// told returns the rule for the limiter's limit.
func told(l *limiter.Limit) oracle.Rule {
	burst := l.Burst
	if l.Algorithm != limiter.TokenBucket && l.Algorithm != limiter.LeakyBucket {
		burst = -1
	}
	return oracle.Rule{
		ID: "r", Algorithm: l.Algorithm.String(), Limit: l.Limit, Window: l.Window, Burst: burst,
		MinInterval: l.MinInterval, CountDenied: l.CountDenied,
	}
}

// clone returns a limit that a test may spoil.
func clone(l *limiter.Limit) *limiter.Limit {
	return &limiter.Limit{
		Rule: l.Rule, Algorithm: l.Algorithm, Storage: l.Storage, Limit: l.Limit, Window: l.Window, Burst: l.Burst,
		MinInterval: l.MinInterval, CountDenied: l.CountDenied,
	}
}

// saturated is a world whose load is several times the limit, on a fast network.
func saturated(l *limiter.Limit, seed uint64) *world {
	w := &world{
		limit: clone(l), rule: told(l), fresh: true, cost: 1, seed: seed,
		delay: 2 * time.Millisecond, pause: l.Window / time.Duration(5*l.Limit), requests: 3000, bots: 2,
	}
	if l.Algorithm == limiter.Concurrency {
		w.hold, w.spare = 100*time.Millisecond, 50*time.Millisecond
		w.rule.Hold = w.hold
		w.pause = w.hold / time.Duration(5*l.Limit)
	}
	return w
}

// everyAlgorithm returns plain limits, one for each algorithm.
func everyAlgorithm() []*limiter.Limit {
	return []*limiter.Limit{
		{Rule: "r", Algorithm: limiter.FixedWindow, Limit: 10, Window: time.Second},
		{Rule: "r", Algorithm: limiter.SlidingWindow, Limit: 10, Window: time.Second},
		{Rule: "r", Algorithm: limiter.TokenBucket, Limit: 10, Window: time.Second, Burst: 5},
		{Rule: "r", Algorithm: limiter.LeakyBucket, Limit: 10, Window: time.Second, Burst: 3},
		{Rule: "r", Algorithm: limiter.RollingWindow, Limit: 10, Window: time.Second},
		{Rule: "r", Algorithm: limiter.RollingWindow, Limit: 10, Window: time.Second, MinInterval: 50 * time.Millisecond},
		{Rule: "r", Algorithm: limiter.RollingWindow, Limit: 1, Window: 10 * time.Second, Storage: limiter.SortedSet},
		{Rule: "r", Algorithm: limiter.Concurrency, Limit: 4, Window: 30 * time.Second},
	}
}

func named(t *testing.T, l *limiter.Limit, f func(t *testing.T, l *limiter.Limit)) {
	name := l.Algorithm.String()
	if l.MinInterval > 0 {
		name += "+min_interval"
	}
	t.Run(name, func(t *testing.T) { f(t, l) })
}
