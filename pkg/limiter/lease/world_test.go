package lease

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weir-edge/weir/pkg/limiter"
	"github.com/weir-edge/weir/pkg/limiter/boottime"
	"github.com/weir-edge/weir/pkg/limiter/memory"
	"github.com/weir-edge/weir/pkg/limiter/storetest"
)

// world is a store and the nodes that share it, in the virtual time of a synctest bubble.
type world struct {
	*testing.T
	random *rand.Rand
	store  *memory.Store
	// replica, if set, follows the store; lost counts the units that it has not seen.
	replica   *memory.Store
	following sync.Mutex
	behind    bool
	lost      int64
	offset    atomic.Int64 // of the store's clock
	nodes     []*node

	mu     sync.Mutex
	passed map[string][]storetest.Passed // by key
	asked  int64
	// arrived is when saturate sent requests, in order.
	arrived []time.Time
	// refused, if set, receives how much of the limit was free when a node refused a request.
	refused func(n *node, free int64)
}

// node is one node with a link to the store that delays, loses and is cut.
type node struct {
	world  *world
	lease  *Store
	denied *limiter.Denied

	mu     sync.Mutex
	paused time.Time // until then, it does nothing and hears nothing
	cut    time.Time // until then, no call gets through
	loss   float64   // of calls and of answers
	delay  time.Duration
	calls  atomic.Int64

	received        atomic.Int64 // by its last grant that was not empty
	monotonic, wall atomic.Int64 // what is added to its clocks
}

var errLost = errors.New("lost")

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

// inWorld runs f in a bubble with a new world.
func inWorld(t *testing.T, nodes int, seed uint64, f func(t *testing.T, w *world)) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nodes, seed)
		defer w.close()
		f(t, w)
	})
}

// sleep lets virtual time pass in a bubble.
func sleep(d time.Duration) { time.Sleep(d) }

func newWorld(t *testing.T, nodes int, seed uint64) *world {
	w := &world{T: t, random: rand.New(&source{PCG: rand.NewPCG(seed, 1)}), passed: map[string][]storetest.Passed{}}
	w.offset.Store(w.random.Int64N(int64(10 * time.Minute)))
	w.store = memory.New(memory.Config{Clock: w.clock})
	born := time.Now()
	for range nodes {
		n := &node{world: w, delay: time.Duration(w.random.Int64N(int64(3 * time.Millisecond)))}
		n.monotonic.Store(w.random.Int64N(int64(10 * time.Minute)))
		n.lease = New(Config{
			Next: link{n}, Grants: link{n}, Nodes: func() int { return nodes },
			Clock: boottime.New(func(t time.Time) (monotonic, wall time.Duration) {
				passed := t.Sub(born)
				return passed + time.Duration(n.monotonic.Load()), passed + time.Duration(n.wall.Load())
			}),
		})
		n.denied = limiter.NewDenied(n.lease, 1000, 0)
		w.nodes = append(w.nodes, n)
	}
	return w
}

func (w *world) clock() int64 { return time.Now().Add(time.Duration(w.offset.Load())).UnixMicro() }

func (w *world) take(ctx context.Context, checks []limiter.Check, d *limiter.Decision) error {
	w.following.Lock()
	defer w.following.Unlock()
	err := w.store.Take(ctx, checks, d)
	switch {
	case w.replica == nil:
	case w.behind:
		for i, r := range d.Results {
			switch {
			case checks[i].Nodes > 0:
				w.lost += r.Granted
			case r.Charged:
				w.lost += checks[i].Cost
			}
		}
	default:
		var same limiter.Decision
		_ = w.replica.Take(ctx, checks, &same) // never fails
	}
	return err
}

func (w *world) giveBack(ctx context.Context, checks []limiter.Check, d *limiter.Decision) error {
	w.following.Lock()
	defer w.following.Unlock()
	if w.replica != nil && !w.behind {
		_ = w.replica.Return(ctx, checks, d) // never fails
	}
	return w.store.Return(ctx, checks, d)
}

// replicate lets the replica follow, or fall behind.
func (w *world) replicate(on bool) {
	w.following.Lock()
	defer w.following.Unlock()
	w.behind = !on
}

// promote lets the replica take over.
func (w *world) promote() {
	w.following.Lock()
	defer w.following.Unlock()
	w.store, w.replica = w.replica, nil
}

// suspend lets that much time pass for all but a node's monotonic clock. The node's own
// goroutines notice nothing of it, as when its machine is suspended.
func (w *world) suspend(n *node, d time.Duration) {
	for _, other := range w.nodes {
		if other != n {
			other.monotonic.Add(int64(d))
		}
		other.wall.Add(int64(d))
	}
	w.offset.Add(int64(d)) // the store last: no node may be behind it unawares
}

func (w *world) close() {
	for _, n := range w.nodes {
		n.lease.Close()
	}
}

func (n *node) set(f func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	f()
}

// wait lets a paused node do nothing.
func (n *node) wait() {
	n.mu.Lock()
	until := n.paused
	n.mu.Unlock()
	time.Sleep(time.Until(until))
}

// link is a node's way to the store.
type link struct{ *node }

type decidedAt struct{}

// over makes a call that may be lost on the way there or back.
func (l link) over(call func() error) error {
	l.mu.Lock()
	l.calls.Add(1)
	cut := time.Now().Before(l.cut)
	there, back := l.world.draw() < l.loss, l.world.draw() < l.loss
	delay := time.Duration(float64(l.delay) * l.world.draw())
	l.mu.Unlock()
	time.Sleep(delay)
	if cut || there {
		time.Sleep(25 * time.Millisecond)
		return errLost
	}
	err := call()
	time.Sleep(delay)
	l.wait()
	if back {
		time.Sleep(25 * time.Millisecond)
		return errLost
	}
	return err
}

func (w *world) draw() float64 { return w.random.Float64() }

// Take implements limiter.Store.
func (l link) Take(ctx context.Context, checks []limiter.Check, d *limiter.Decision) error {
	return l.over(func() error {
		if at, ok := ctx.Value(decidedAt{}).(*int64); ok {
			*at = l.world.clock()
		}
		err := l.world.take(ctx, checks, d)
		if g := d.Results[0].Granted; g > 0 {
			l.received.Store(g)
		}
		return err
	})
}

// Return implements limiter.Returner.
func (l link) Return(ctx context.Context, checks []limiter.Check, d *limiter.Decision) error {
	return l.over(func() error { return l.world.giveBack(ctx, checks, d) })
}

// Reset implements limiter.Resetter.
func (l link) Reset(ctx context.Context, checks []limiter.Check) error {
	return l.world.store.Reset(ctx, checks)
}

// request asks a node and records what passed, at the time when the node read its clock or
// the store decided.
func (n *node) request(checks ...limiter.Check) bool {
	n.wait()
	w, read := n.world, n.world.clock()
	decided := read
	var free int64
	if w.refused != nil {
		free = checks[0].Limit.Limit - w.used(checks[0])
	}
	var d limiter.Decision
	err := n.denied.Take(context.WithValue(context.Background(), decidedAt{}, &decided), checks, &d)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asked++
	if err != nil || !d.Allowed {
		if w.refused != nil {
			// The answer to a request of the last window may arrive in the next, which is empty.
			w.refused(n, min(free, checks[0].Limit.Limit-w.used(checks[0])))
		}
		return false
	}
	for i := range checks {
		at := decided
		if d.Results[i].Source == limiter.SourceLease {
			at = read
		}
		key := string(checks[i].Key)
		w.passed[key] = append(w.passed[key], storetest.Passed{At: at, Cost: checks[i].Cost})
	}
	return true
}

// drive sends requests to a node at about that rate until the time is over.
func (n *node) drive(rate float64, length time.Duration, checks func() []limiter.Check) {
	for end := time.Now().Add(length); time.Now().Before(end); {
		time.Sleep(time.Duration(min(n.world.exponential()/rate, 5) * float64(time.Second)))
		n.request(checks()...)
	}
}

func (w *world) exponential() float64 { return w.random.ExpFloat64() }

func check(l *limiter.Limit, cost int64) limiter.Check {
	return limiter.Check{Limit: l, Key: storetest.Key("a", l), Cost: cost}
}
