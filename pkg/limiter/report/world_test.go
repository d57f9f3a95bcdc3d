package report

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/pkg/limiter"
	"github.com/weir-edge/weir/pkg/limiter/memory"
	"github.com/weir-edge/weir/pkg/limiter/storetest"
)

// world is a store and its nodes, in the virtual time of a synctest bubble.
type world struct {
	*testing.T
	random *rand.Rand
	offset time.Duration // of the store's clock
	nodes  []*node

	mu       sync.Mutex
	counts   map[string]int64
	buckets  map[string]*level
	admitted []event
	lost     int64 // units in reports that will never be counted
}

type level struct {
	level float64
	at    int64
}

// event is a request, at its decision's time by the store's clock.
type event struct {
	key  string
	at   int64
	cost int64
}

// node is a node with a link to the store that delays, loses and breaks.
type node struct {
	world  *world
	store  *Store
	local  *memory.Store
	offset time.Duration // of its clock
	random *rand.Rand    // its own: what others draw changes nothing

	mu    sync.Mutex
	asked []event
	cut   time.Time
	loss  float64
	delay time.Duration
	calls atomic.Int64 // keys reported
}

var errLost = errors.New("lost")

// longestTrip is the longest duration of a report in a world: Config.Trip.
const longestTrip = 25 * time.Millisecond

// source lets goroutines share random numbers.
type source struct {
	sync.Mutex
	*rand.PCG
}

// Uint64 implements rand.Source.
func (s *source) Uint64() uint64 {
	s.Lock()
	defer s.Unlock()
	return s.PCG.Uint64()
}

// sleep advances a bubble's virtual time.
func sleep(d time.Duration) { time.Sleep(d) }

func inWorld(t *testing.T, nodes int, seed uint64, f func(t *testing.T, w *world)) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nodes, seed)
		defer w.close()
		f(t, w)
	})
}

func newWorld(t *testing.T, nodes int, seed uint64) *world {
	w := &world{T: t, random: rand.New(&source{PCG: rand.NewPCG(seed, 1)}), counts: map[string]int64{}, buckets: map[string]*level{}}
	w.offset = time.Duration(w.random.Int64N(int64(10 * time.Minute)))
	born := time.Now()
	for i := range nodes {
		n := &node{world: w, random: rand.New(&source{PCG: rand.NewPCG(seed, uint64(2+i))}), delay: time.Duration(w.random.Int64N(int64(longestTrip / 2))), local: memory.New(memory.Config{})}
		n.offset = time.Duration(w.random.Int64N(int64(10 * time.Minute)))
		time.Sleep(time.Duration(w.random.Int64N(int64(limiter.ReportEvery)))) // nodes do not start together
		n.store = New(Config{
			Next: strict{n.local}, Reporter: link{n}, Local: limiter.NewFallback(strict{n.local}, n.local, func() int { return nodes }, nil),
			Nodes: func() int { return nodes }, Trip: longestTrip,
			Clock: func() time.Duration { return time.Since(born) + n.offset },
			Wall:  w.clock, // as after the first answer
		})
		w.nodes = append(w.nodes, n)
	}
	return w
}

func (w *world) clock() int64 { return time.Now().Add(w.offset).UnixMicro() }

func (w *world) close() {
	for _, n := range w.nodes {
		n.store.Close()
		n.store.config.Local.(*limiter.Fallback).Close()
	}
}

// strict is the next store of a world.
type strict struct{ *memory.Store }

// link is a node's way to the store.
type link struct{ *node }

// Report implements limiter.Reporter.
func (l link) Report(_ context.Context, reports []limiter.Report) {
	w := l.world
	l.mu.Lock()
	cut := time.Now().Before(l.cut)
	there, back := l.random.Float64() < l.loss, l.random.Float64() < l.loss
	delay := time.Duration(float64(l.delay) * l.random.Float64())
	l.calls.Add(int64(len(reports)))
	l.mu.Unlock()
	if cut {
		for i := range reports {
			reports[i].Err, reports[i].Lost = errLost, false
		}
		return
	}
	if there {
		delay = longestTrip
	}
	time.Sleep(delay)
	w.mu.Lock()
	now := w.clock()
	for i := range reports {
		r := &reports[i]
		r.Err, r.Lost = nil, false
		if there {
			r.Err, r.Lost = errLost, true
			w.lost += r.Units + r.Late
			continue
		}
		w.count(r, now)
		if back {
			r.Err, r.Lost = errLost, true
		}
	}
	w.mu.Unlock()
	if back {
		delay = longestTrip - delay
	}
	time.Sleep(delay)
}

// count counts like Redis.
func (w *world) count(r *limiter.Report, now int64) {
	r.Now = now
	if r.Limit.Algorithm == limiter.TokenBucket {
		b := w.buckets[string(r.Key)]
		if b == nil {
			b = &level{at: now}
			w.buckets[string(r.Key)] = b
		}
		b.level = max(0, b.level-perMicrosecond(r.Limit)*float64(now-b.at))
		b.level, b.at = max(0, b.level+float64(r.Units)), now
		r.Level = b.level
		return
	}
	w.counts[string(r.Key)] += r.Units
	r.Count = w.counts[string(r.Key)]
	if r.Earlier != nil {
		w.counts[string(r.Earlier)] += r.Late
		r.Before = w.counts[string(r.Earlier)]
	}
}

// Forget implements limiter.Reporter.
func (l link) Forget(_ context.Context, keys [][]byte) error {
	l.world.mu.Lock()
	defer l.world.mu.Unlock()
	for _, key := range keys {
		delete(l.world.counts, string(key))
		delete(l.world.buckets, string(key))
	}
	return nil
}

// request asks a node and records what it was asked for and what it admitted.
func (n *node) request(checks ...limiter.Check) bool {
	var d limiter.Decision
	at := n.world.clock()
	err := n.store.Take(context.Background(), checks, &d)
	require.NoError(n.world, err)
	n.mu.Lock()
	n.asked = append(n.asked, event{string(checks[0].Key), at, checks[0].Cost})
	n.mu.Unlock()
	if !d.Allowed {
		return false
	}
	n.world.mu.Lock()
	defer n.world.mu.Unlock()
	if r := &d.Results[0]; r.Source == limiter.SourceReported {
		at = r.TakenAt
	}
	n.world.admitted = append(n.world.admitted, event{string(checks[0].Key), at, checks[0].Cost})
	return true
}

// drive sends requests to a node at about that rate until the time is over.
func (n *node) drive(rate float64, length time.Duration, checks func() []limiter.Check) {
	for end := time.Now().Add(length); time.Now().Before(end); {
		time.Sleep(time.Duration(min(n.random.ExpFloat64()/rate, 5) * float64(time.Second)))
		n.request(checks()...)
	}
}

// peak returns the most that a node was asked for in any interval of that length.
func (n *node) peak(length time.Duration) (most int64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	var sum int64
	from := 0
	for _, e := range n.asked {
		sum += e.cost
		for e.at-n.asked[from].at > length.Microseconds() {
			sum -= n.asked[from].cost
			from++
		}
		most = max(most, sum)
	}
	return most
}

// bound returns how much may pass over a limit: see limiter.ReportDelay. A node admits what it
// is asked for in one half of the delay until it has reported, and in another from its next
// request on.
func (w *world) bound(delay time.Duration) (sum int64) {
	for _, n := range w.nodes {
		sum += 2 * n.peak(delay/2)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return sum + w.lost
}

// exceeds returns the largest excess of admitted units over the limit of any key at any
// instant, by an account independent of nodes.
func (w *world) exceeds(l *limiter.Limit) (most float64) {
	for _, over := range w.excesses(l) {
		most = max(most, over)
	}
	return most
}

func (w *world) excesses(l *limiter.Limit) map[string]float64 {
	byKey, list := map[string][]event{}, map[string]float64{}
	for _, e := range w.admitted {
		byKey[e.key] = append(byKey[e.key], e)
	}
	for key, events := range byKey {
		list[key] = excess(l, events)
	}
	return list
}

func excess(l *limiter.Limit, admitted []event) (most float64) {
	slices.SortStableFunc(admitted, func(a, b event) int { return int(a.at - b.at) })
	window := l.Window.Microseconds()
	counts := map[int64]int64{}
	b := level{}
	for _, e := range admitted {
		start := e.at - e.at%window
		counts[start] += e.cost
		over := float64(counts[start] - l.Limit)
		switch l.Algorithm {
		case limiter.SlidingWindow:
			over += float64(counts[start-window]) * float64(window-(e.at-start)/1000*1000) / float64(window)
		case limiter.TokenBucket:
			b.level = max(0, b.level-perMicrosecond(l)*float64(e.at-b.at)) + float64(e.cost)
			b.at = e.at
			over = b.level - float64(l.Burst)
		}
		most = max(most, over)
	}
	return most
}

func (w *world) passed() (sum int64) {
	for _, e := range w.admitted {
		sum += e.cost
	}
	return sum
}

func limit(t testing.TB, line string) *limiter.Limit {
	l, err := storetest.ParseLimit(strings.Fields(line))
	require.NoError(t, err)
	l.Reported = true
	return l
}

func check(l *limiter.Limit, cost int64) limiter.Check {
	return limiter.Check{Limit: l, Key: storetest.Key("a", l), Cost: cost}
}
