package main

import (
	"bytes"
	"context"
	"fmt"
	"hash/fnv"
	"math"
	"math/rand"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/pkg/limiter"
	"github.com/weir-edge/weir/pkg/limiter/lease"
	"github.com/weir-edge/weir/pkg/limiter/memory"
)

// fleet is edge nodes that share the masters of a Cluster. Its layers are real and their
// time is virtual: no machine here could run so many nodes.
type fleet struct {
	nodes, masters, users int
	rate                  float64 // requests per second, of all nodes
	zipf                  bool    // by Zipf's law with 1.1; else uniform
	limit                 *limiter.Limit
	trip                  time.Duration // to a master and back
	linger                time.Duration // of the nodes' batches
	warm, measured        time.Duration
}

// What a master takes for a batch, for each script and for each call in it; the queues before
// it depend on that, its CPU time is measured (replay). The calls of a kind share a script.
const (
	batchCost  = 6 * time.Microsecond
	scriptCost = 6 * time.Microsecond
	callCost   = 4 * time.Microsecond
)

// traffic is what reached the masters while it was measured.
type traffic struct {
	decisions, allowed int
	seconds            float64
	byNode             [][]batch
	byMaster           []int // calls
	calls              int
	p99                time.Duration // that a decision took
	over, bound, cold  float64       // reported rules: as parts of the limit, see exceeded
}

// batch is a round trip from a node to a master.
type batch []op

// op is one call.
type op struct {
	user  int32
	times int32
	cost  int64
	kind  kind
	name  string // of the counter, for tally
}

type kind byte

const (
	take kind = iota
	grant
	giveBack
	tally // INCRBY, or GET without a cost
	ask   // TIME
)

// key returns the key of a user.
func key(user int, l *limiter.Limit) []byte {
	return fmt.Appendf(nil, "weir:{user-%d}:t:%s", user, l.Tag())
}

// rates returns the requests per second of each user.
func (f *fleet) rates() []float64 {
	all, sum := make([]float64, f.users), 0.0
	for i := range all {
		all[i] = 1
		if f.zipf {
			all[i] = math.Pow(float64(1+i), -1.1)
		}
		sum += all[i]
	}
	for i := range all {
		all[i] *= f.rate / sum
	}
	return all
}

// limitFor returns the limit a window that lets a share of the requests pass.
func (f *fleet) limitFor(share float64) int64 {
	rates := f.rates()
	low, high := 0.0, f.rate
	for range 60 {
		middle, passed := (low+high)/2, 0.0
		for _, r := range rates {
			passed += min(r, middle)
		}
		if passed < share*f.rate {
			low = middle
		} else {
			high = middle
		}
	}
	return int64(math.Ceil(high * f.limit.Window.Seconds()))
}

// world is a fleet that runs.
type world struct {
	fleet
	t      *testing.T
	keys   [][]byte
	number map[string]int32 // of a key's user
	owners []*master
	from   time.Time // when measuring begins

	mu      sync.Mutex
	traffic traffic
	took    []time.Duration
}

// master decides in memory, one batch after another.
type master struct {
	world *world
	index int
	store *memory.Store

	mu     sync.Mutex
	busy   time.Time
	counts map[string]int64 // of reported rules
}

// run lets the fleet run in a bubble and returns what it did.
func (f fleet) run(t *testing.T) *traffic {
	w := &world{fleet: f, number: map[string]int32{}}
	for i := range f.users {
		w.keys = append(w.keys, key(i, f.limit))
		w.number[string(w.keys[i])] = int32(i)
	}
	w.traffic = traffic{byNode: make([][]batch, f.nodes), byMaster: make([]int, f.masters), seconds: f.measured.Seconds()}
	synctest.Test(t, func(t *testing.T) {
		w.t = t
		clock := func() int64 { return time.Now().UnixMicro() }
		for i := range f.masters {
			w.owners = append(w.owners, &master{world: w, index: i, counts: map[string]int64{}, store: memory.New(memory.Config{Clock: clock, MaxKeys: f.users + 1000})})
		}
		w.fill()
		w.from = time.Now().Add(f.warm)
		var all sync.WaitGroup
		for i := range f.nodes {
			all.Go(func() { w.node(i) })
		}
		all.Wait()
	})
	slices.Sort(w.took)
	w.traffic.p99 = w.took[len(w.took)*99/100]
	return &w.traffic
}

// fill spends what users of a higher rate than their limit have spent at any time.
func (w *world) fill() {
	l := w.limit
	charge := func(share float64) {
		for user, rate := range w.rates() {
			n := int64(share * float64(l.Limit))
			if rate*l.Window.Seconds() <= float64(l.Limit) || n == 0 {
				continue
			}
			if l.Reported {
				name := limiter.AppendWindow(nil, w.keys[user], time.Now().Truncate(l.Window).UnixMicro())
				w.master(name).counts[string(name)] += n
			} else {
				checks := []limiter.Check{{Limit: l, Key: w.keys[user], Cost: n}}
				var d limiter.Decision
				require.NoError(w.t, w.master(w.keys[user]).store.Take(context.Background(), checks, &d))
			}
		}
	}
	switch l.Algorithm {
	case limiter.SlidingWindow:
		sleepTo(l.Window, 0)
		charge(1)
		sleepTo(l.Window, l.Window/2)
		charge(0.5)
	case limiter.TokenBucket:
		charge(float64(l.Burst) / float64(l.Limit))
	}
}

// sleepTo sleeps until that long after the beginning of the next window.
func sleepTo(window, after time.Duration) {
	now := time.Now()
	time.Sleep(now.Truncate(window).Add(window + after).Sub(now))
}

// master returns the one that owns a key.
func (w *world) master(key []byte) *master {
	h := fnv.New32a()
	_, _ = h.Write(key[:bytes.IndexByte(key, '}')]) // its hash tag
	return w.owners[int(h.Sum32()>>8)%len(w.owners)]
}

// node sends its share of the requests through the layers of an edge.
func (w *world) node(index int) {
	shards := map[*master]*limiter.Combine{}
	for _, m := range w.owners {
		shards[m] = limiter.NewCombine(link{m, index}, time.Minute, limiter.MaxBatchesInFlight, w.linger, nil)
		defer shards[m].Close()
	}
	next := spread{w, shards}
	reports, closeReports := w.reports(index, next)
	defer closeReports()
	leases := lease.New(lease.Config{Next: next, Grants: next, Nodes: func() int { return w.nodes }})
	defer leases.Close()
	var layer limiter.FullStore = leases
	if w.limit.Reported {
		layer = reports
	}
	store := limiter.NewDenied(layer, 100_000, 0)
	r := rand.New(rand.NewSource(int64(index)))
	user := func() int { return r.Intn(w.users) }
	if w.zipf {
		z := rand.NewZipf(r, 1.1, 1, uint64(w.users-1))
		user = func() int { return int(z.Uint64()) }
	}
	rate := w.rate / float64(w.nodes)
	cold := 0.0
	var requests sync.WaitGroup
	requests.Go(func() {
		time.Sleep(min(coldFor, w.warm))
		cold, _ = exceeded(reports)
	})
	for end := w.from.Add(w.measured); ; {
		time.Sleep(time.Duration(r.ExpFloat64() * float64(time.Second) / rate))
		if !time.Now().Before(end) {
			break
		}
		checks := []limiter.Check{{Limit: w.limit, Key: w.keys[user()], Cost: 1}}
		request := func() {
			var d limiter.Decision
			began := time.Now()
			require.NoError(w.t, store.Take(context.Background(), checks, &d))
			w.count(began, d.Allowed)
		}
		if w.limit.Reported { // it does not wait
			request()
		} else {
			requests.Go(request)
		}
	}
	requests.Wait()
	over, bound := exceeded(reports)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.traffic.over, w.traffic.bound, w.traffic.cold = max(w.traffic.over, over), max(w.traffic.bound, bound), max(w.traffic.cold, cold)
}

func (w *world) count(began time.Time, allowed bool) {
	if began.Before(w.from) {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.traffic.decisions++
	if allowed {
		w.traffic.allowed++
	}
	w.took = append(w.took, time.Since(began))
}

// spread asks the master that owns a key.
type spread struct {
	world  *world
	shards map[*master]*limiter.Combine
}

func (s spread) Take(ctx context.Context, checks []limiter.Check, d *limiter.Decision) error {
	return s.shards[s.world.master(checks[0].Key)].Take(ctx, checks, d)
}

func (s spread) Return(ctx context.Context, checks []limiter.Check, d *limiter.Decision) error {
	return s.shards[s.world.master(checks[0].Key)].Return(ctx, checks, d)
}

func (s spread) Reset(context.Context, []limiter.Check) error { return nil }

// link is a node's way to a master.
type link struct {
	*master
	node int
}

// Follow implements limiter.Batcher.
func (l link) Follow(context.Context, []*limiter.Call) {}

// Do implements limiter.Batcher.
func (l link) Do(ctx context.Context, calls []*limiter.Call, by time.Time) (rest func()) {
	time.Sleep(l.world.trip / 2)
	l.mu.Lock()
	if now := time.Now(); l.busy.Before(now) {
		l.busy = now
	}
	l.busy = l.busy.Add(batchCost + scriptsFor(calls)*scriptCost + time.Duration(len(calls))*callCost)
	end := l.busy.Add(l.world.trip / 2)
	l.mu.Unlock()
	b := make(batch, len(calls))
	for i, c := range calls {
		b[i] = l.decide(ctx, c)
	}
	l.world.record(l, b)
	if !by.IsZero() && by.Before(end) {
		time.Sleep(time.Until(by))
		return func() { time.Sleep(time.Until(end)) }
	}
	time.Sleep(time.Until(end))
	return nil
}

// scriptsFor returns how many scripts serve the calls.
func scriptsFor(calls []*limiter.Call) (n time.Duration) {
	var taking, leasing time.Duration
	for _, c := range calls {
		switch {
		case c.Return:
			n++
		case c.Lease():
			leasing = 1
		default:
			taking = 1
		}
	}
	return n + taking + leasing
}

// decide fills in what the scripts would answer.
func (m *master) decide(ctx context.Context, c *limiter.Call) op {
	o := op{user: m.world.number[string(c.Checks[0].Key)], times: int32(c.Times), cost: c.Checks[0].Cost}
	var d limiter.Decision
	c.Now = time.Now().UnixMicro()
	if c.Return {
		o.kind = giveBack
		d.Results = []limiter.Result{{Charged: true, TakenAt: c.TakenAt[0]}}
		c.Err = m.store.Return(ctx, c.Checks, &d)
		return o
	}
	var fits int64
	for range max(c.Times, 1) {
		if c.Err = m.store.Take(ctx, c.Checks, &d); c.Err != nil {
			return o
		}
		if d.Allowed {
			fits++
		}
	}
	if c.Lease() {
		o.kind, fits = grant, d.Results[0].Granted
	}
	r := &d.Results[0]
	c.Answers = append(c.Answers, limiter.Answer{Fits: fits, Remaining: r.Remaining, Retry: r.RetryAfter.Microseconds(), Reset: r.ResetAfter.Microseconds()})
	return o
}

func (w *world) record(l link, b batch) {
	if now := time.Now(); now.Before(w.from) || now.After(w.from.Add(w.measured)) {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.traffic.byNode[l.node] = append(w.traffic.byNode[l.node], b)
	w.traffic.byMaster[l.index] += len(b)
	w.traffic.calls += len(b)
}
