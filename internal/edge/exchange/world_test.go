package exchange

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/edge/peer"
	"github.com/weir-edge/weir/pkg/limiter"
	"github.com/weir-edge/weir/pkg/limiter/escrow"
	"github.com/weir-edge/weir/pkg/limiter/global"
	"github.com/weir-edge/weir/pkg/limiter/lease"
	"github.com/weir-edge/weir/pkg/limiter/memory"
	"github.com/weir-edge/weir/pkg/limiter/storetest"
	"github.com/weir-edge/weir/pkg/limiter/tally"
)

// world is regions of nodes in virtual time: real exchanges, tallies and stores, and a
// network that delays, loses and doubles messages.
type world struct {
	*testing.T
	limit     *limiter.Limit
	directory atomic.Pointer[peer.Directory]
	regions   []*region
	mu        sync.Mutex
	random    *rand.Rand
	lose      float64
	cut       map[string]bool // regions
	unneeded  atomic.Bool     // no limit is shared
	later     atomic.Bool     // all messages say more than this release knows
	calls     atomic.Int64
	farther   atomic.Int64 // by how many times their usual distance regions are
	nodes     map[string]*node
	passed    map[string]int64 // by key and window
}

type region struct {
	name  string
	store *swap
	nodes []*node
	skew  atomic.Int64 // of its clocks, in nanoseconds
}

// swap is a store that can lose everything, and hang.
type swap struct {
	now  atomic.Pointer[memory.Store]
	hung atomic.Bool // it counts and merges nothing, and answers once its caller gives up
}

func (s *swap) Take(ctx context.Context, c []limiter.Check, d *limiter.Decision) error {
	return s.now.Load().Take(ctx, c, d)
}
func (s *swap) Return(ctx context.Context, c []limiter.Check, d *limiter.Decision) error {
	return s.now.Load().Return(ctx, c, d)
}
func (s *swap) Reset(ctx context.Context, c []limiter.Check) error { return s.now.Load().Reset(ctx, c) }
func (s *swap) Tally(ctx context.Context, n string, t []limiter.Tally) {
	if !s.hung.Load() {
		s.now.Load().Tally(ctx, n, t)
		return
	}
	<-ctx.Done()
	for i := range t {
		t[i].Err = ctx.Err()
	}
}
func (s *swap) Merge(ctx context.Context, m []limiter.Merge) {
	if !s.hung.Load() {
		s.now.Load().Merge(ctx, m)
		return
	}
	<-ctx.Done()
	for i := range m {
		m[i].Err = ctx.Err()
	}
}
func (s *swap) Move(ctx context.Context, m []limiter.Move) {
	if !s.hung.Load() {
		s.now.Load().Move(ctx, m)
		return
	}
	<-ctx.Done()
	for i := range m {
		m[i].Err = ctx.Err()
	}
}

func (s *swap) Renew(ctx context.Context, t []limiter.Term) {
	if !s.hung.Load() {
		s.now.Load().Renew(ctx, t)
		return
	}
	<-ctx.Done()
	for i := range t {
		t[i].Err = ctx.Err()
	}
}
func (s *swap) Open(ctx context.Context) error {
	if s.hung.Load() {
		<-ctx.Done()
		return ctx.Err()
	}
	return s.now.Load().Open(ctx)
}

func (s *swap) Reopen(ctx context.Context) error { return s.now.Load().Reopen(ctx) }

type node struct {
	peer.Node
	world    *world
	region   *region
	exchange *Exchange
	tallies  *tally.Store
	leases   *lease.Store // nil: nothing is leased
	stop     context.CancelFunc
	ended    chan struct{}
	dead     atomic.Bool
}

func newWorld(t *testing.T, line string, policy limiter.OnPartition, nodes int) *world {
	l, err := storetest.ParseLimit(strings.Fields(line))
	require.NoError(t, err)
	escrowed := l.Global != nil && l.Global.Escrow
	l.Global = &limiter.Global{Escrow: escrowed, OnPartition: policy, PartitionAfter: 10 * time.Second}
	w := &world{T: t, limit: l, random: rand.New(rand.NewPCG(1, 2)), cut: map[string]bool{}, nodes: map[string]*node{}, passed: map[string]int64{}}
	for _, name := range []string{"a", "b", "c"} {
		r := &region{name: name, store: &swap{}}
		w.regions = append(w.regions, r)
		w.flush(r)
		for i := range nodes {
			r.nodes = append(r.nodes, &node{Node: peer.Node{Region: name, ID: fmt.Sprint(name, i), Addr: fmt.Sprint(name, i)}, world: w, region: r})
		}
	}
	w.list()
	time.Sleep(w.untilWindow() - 3*time.Second) // nodes that exchange cost real time
	for _, r := range w.regions {
		for _, n := range r.nodes {
			n.start()
		}
	}
	t.Cleanup(func() {
		for _, n := range w.nodes {
			n.kill()
		}
	})
	return w
}

// flush lets a region's store lose everything.
func (w *world) flush(r *region) {
	r.store.now.Store(memory.New(memory.Config{Clock: func() int64 { return time.Now().Add(time.Duration(r.skew.Load())).UnixMicro() }}))
}

// list puts the living nodes into the directory, all but some.
func (w *world) list(except ...string) {
	var list []peer.Region
	for _, r := range w.regions {
		one := peer.Region{Name: r.name}
		for _, n := range r.nodes {
			if !n.dead.Load() && !slices.Contains(except, n.ID) {
				one.Nodes = append(one.Nodes, n.Node)
			}
		}
		list = append(list, one)
	}
	w.directory.Store(peer.NewDirectory(list[0].Nodes[0], list))
}

func (n *node) start() {
	wall := func() int64 { return time.Now().Add(time.Duration(n.region.skew.Load())).UnixMicro() }
	var next limiter.FullStore = n.region.store
	if n.world.limit.Leased {
		n.leases = lease.New(lease.Config{Next: next, Grants: n, Nodes: func() int { return len(n.region.nodes) }})
		next = n.leases
	}
	checks := escrow.New(limiter.NoDenied{FullStore: next}, wall)
	n.tallies = tally.New(tally.Config{Next: checks, Merger: n, Node: fmt.Sprint(n.ID, time.Now().UnixMicro())})
	n.exchange = New(Config{
		Region: n.Region, Node: n.ID, Directory: n, Caller: n, Store: n.region.store, Tallies: n.tallies,
		Escrow: Escrow{checks, n, n, func() bool { return n.world.limit.Global.Escrow && !n.world.unneeded.Load() }},
		Limit: func(rule, _ string) *limiter.Limit {
			if rule != n.world.limit.Rule {
				return nil
			}
			return n.world.limit
		},
		Needed:      func() bool { return !n.world.unneeded.Load() },
		Reset:       n.tallies.Reset,
		Incarnation: time.Now().UnixMicro(),
		Wall:        wall,
	})
	var ctx context.Context
	ctx, n.stop = context.WithCancel(context.Background())
	n.ended = make(chan struct{})
	n.dead.Store(false)
	n.world.mu.Lock()
	n.world.nodes[n.ID] = n
	n.world.mu.Unlock()
	go func() { defer close(n.ended); n.exchange.Run(ctx) }()
}

func (n *node) kill() {
	n.dead.Store(true)
	n.stop()
	<-n.ended
	if n.leases != nil {
		n.leases.Close()
	}
}

// Tally is the store's, for a node that lives.
func (n *node) Tally(ctx context.Context, name string, t []limiter.Tally) {
	if !n.dead.Load() {
		n.region.store.Tally(ctx, name, t)
	}
}

// Move is the store's, for a node that lives.
func (n *node) Move(ctx context.Context, m []limiter.Move) {
	if !n.dead.Load() {
		n.region.store.Move(ctx, m)
		return
	}
	for i := range m {
		m[i].Err = errLost
	}
}

// Renew is the store's, for a node that lives.
func (n *node) Renew(ctx context.Context, t []limiter.Term) {
	if !n.dead.Load() {
		n.region.store.Renew(ctx, t)
		return
	}
	for i := range t {
		t[i].Err = errLost
	}
}

func (n *node) Open(ctx context.Context) error { return n.region.store.Open(ctx) }

func (n *node) Reopen(ctx context.Context) error { return n.region.store.Reopen(ctx) }

func (n *node) Merge(ctx context.Context, m []limiter.Merge) { n.region.store.Merge(ctx, m) }

func (n *node) IsSelf(o peer.Node) bool { return o == n.Node }
func (n *node) Regions() []string       { return n.world.directory.Load().Regions() }
func (n *node) Owner(region, key string) (peer.Node, bool) {
	return n.world.directory.Load().Owner(region, key)
}

var errLost = errors.New("lost")

// Call carries a message and its answer.
func (n *node) Call(ctx context.Context, to peer.Node, topic string, body []byte) ([]byte, error) {
	w := n.world
	w.calls.Add(1)
	if n.dead.Load() {
		return nil, errLost
	}
	way := func() error {
		w.mu.Lock()
		lost := to.Region != n.Region && (w.cut[to.Region] || w.cut[n.Region] || w.random.Float64() < w.lose)
		extra := time.Duration(w.random.Int64N(int64(w.delay(n.Region, to.Region)/4) + 1))
		w.mu.Unlock()
		if lost {
			<-ctx.Done()
			return errLost
		}
		time.Sleep(w.delay(n.Region, to.Region) + extra)
		return ctx.Err()
	}
	if err := way(); err != nil {
		return nil, err
	}
	w.mu.Lock()
	other := w.nodes[to.ID]
	twice := w.lose > 0 && w.random.IntN(4) == 0
	w.mu.Unlock()
	if other.dead.Load() {
		return nil, errLost
	}
	answer := map[string]peer.Handler{TopicCounts: other.exchange.Counts, TopicTotals: other.exchange.Totals, TopicReset: other.exchange.Resets, TopicShort: other.exchange.Short, TopicRights: other.exchange.Rights, TopicTerms: other.exchange.Terms}[topic]
	if w.later.Load() {
		body = later(topic, body)
	}
	reply, err := answer(ctx, n.Node, body)
	if twice {
		reply, err = answer(ctx, n.Node, body)
	}
	if err != nil {
		w.Errorf("%s to %s: %v", topic, to.ID, err)
		return nil, err
	}
	if err := way(); err != nil {
		return nil, err
	}
	if w.later.Load() {
		reply = later(topic, reply)
	}
	return reply, nil
}

// ask is a request in a region, at one of its living nodes.
func (w *world) ask(r *region, key string) bool {
	w.mu.Lock()
	n := r.nodes[w.random.IntN(len(r.nodes))]
	for n.dead.Load() {
		n = r.nodes[w.random.IntN(len(r.nodes))]
	}
	w.mu.Unlock()
	var d limiter.Decision
	require.NoError(w, n.tallies.Take(context.Background(), []limiter.Check{{Limit: w.limit, Key: storetest.Key(key, w.limit), Cost: 1}}, &d))
	if d.Allowed {
		width := global.Width(w.limit)
		now := time.Now().UnixMicro()
		if w.limit.Global.Escrow { // by window id
			now = d.Results[0].TakenAt
		}
		w.passed[fmt.Sprint(key, now-now%width)]++
	}
	return d.Allowed
}

// demand asks every region at a rate, in requests per second.
func (w *world) demand(rate float64, length time.Duration, key string) {
	pause := time.Duration(float64(time.Second) / rate)
	for end := time.Now().Add(length); time.Now().Before(end); time.Sleep(pause) {
		for _, r := range w.regions {
			w.ask(r, key)
		}
	}
}

// over returns by how much a key's limit was exceeded in its worst window.
func (w *world) over(key string) (most float64) {
	for name, n := range w.passed {
		if strings.HasPrefix(name, key) {
			most = max(most, global.Excess(w.limit, n))
		}
	}
	return most
}

// untilWindow is the time until the next window begins.
func (w *world) untilWindow() time.Duration {
	width := time.Duration(global.Width(w.limit)) * time.Microsecond
	return width - time.Duration(time.Now().UnixMicro())*time.Microsecond%width
}

// inWorld runs a test in virtual time.
func inWorld(t *testing.T, line string, nodes int, test func(w *world)) {
	t.Helper()
	inWorldOf(t, line, limiter.PartitionShare, nodes, test)
}

func inWorldOf(t *testing.T, line string, policy limiter.OnPartition, nodes int, test func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, line, policy, nodes)
		w.wait(w.untilWindow()) // meanwhile all hear of each other
		test(w)
	})
}

// cutOff cuts a region off, or ends that.
func (w *world) cutOff(region string, cut bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cut[region] = cut
}

// losing lets that part of the messages between regions get lost, and some arrive twice.
func (w *world) losing(part float64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lose = part
}

// wait lets virtual time pass.
func (w *world) wait(d time.Duration) { time.Sleep(d) }
