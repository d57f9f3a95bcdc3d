// Package chain composes the layers that decide. It is the only place where one layer is put
// around another, but for those within redisstore.
package chain

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/weir-edge/weir/pkg/limiter"
	"github.com/weir-edge/weir/pkg/limiter/escrow"
	"github.com/weir-edge/weir/pkg/limiter/lease"
	"github.com/weir-edge/weir/pkg/limiter/memory"
	"github.com/weir-edge/weir/pkg/limiter/redisstore"
	"github.com/weir-edge/weir/pkg/limiter/report"
	"github.com/weir-edge/weir/pkg/limiter/tally"
)

// Config says which layers a Chain has.
type Config struct {
	// Redis keeps the counts; nil: this process does.
	Redis *redisstore.Config
	// Memory is the store in this process, which also counts while Redis cannot.
	Memory memory.Config
	// DeniedMemory is how many refusals are remembered in front of Redis.
	DeniedMemory int
	// Nodes returns how many processes share Redis, this one included.
	Nodes func() int
	// Failed, if not nil, receives every error of Redis.
	Failed func(error)
	// Node names this process to other regions, differently after each start; "": it reaches
	// none.
	Node string
}

// Chain decides. Its fields are steps that callers take, all through the same layers.
type Chain struct {
	Precheck limiter.Prechecker // first, without I/O: what is known to be refused
	Take     limiter.Taker      // then the decision
	Return   limiter.Returner   // and, once the request has ended, its concurrency slots
	Reset    limiter.Resetter
	Peek     Peeker
	Layers
}

// Peeker decides as if for a request, but charges nothing.
type Peeker interface {
	Peek(ctx context.Context, checks []limiter.Check, d *limiter.Decision) error
}

// Layers are the layers that have more to show than decisions; nil if the chain has none.
type Layers struct {
	Local    *memory.Store // always
	Shared   *redisstore.Store
	Leases   *lease.Store
	Reports  *report.Store
	Escrows  *escrow.Store
	Tallies  *tally.Store
	Counters Counters // always

	fallback *limiter.Fallback
	denied   *limiter.Denied
}

// Counters is what the store knows of global limits.
type Counters interface {
	limiter.Merger
	limiter.Mover
	limiter.TermStore
	Counters(ctx context.Context, key []byte, start int64) (own int64, others map[string]int64, err error)
}

// allLayers are all layers, from the request inwards. Each that the chain needs is put in front of
// those after it. Redis's store has layers of its own.
var allLayers = []struct {
	name   string
	needed func(*builder) bool
	put    func(*builder)
}{
	{"tally", (*builder).regions, (*builder).tally},
	{"escrow", (*builder).regions, (*builder).escrow},
	{"Denied", (*builder).redis, (*builder).putDenied},
	{"report", (*builder).redis, (*builder).report},
	{"lease", (*builder).redis, (*builder).lease},
	{"Spread", (*builder).slots, (*builder).spread},
	{"Fallback", (*builder).redis, (*builder).fallBack},
}

func (b *builder) regions() bool { return b.Node != "" }
func (b *builder) redis() bool   { return b.Shared != nil }
func (b *builder) slots() bool   { return b.redis() && b.Shared.Slots() }

// builder is a chain without its outermost layers.
type builder struct {
	Config
	Layers
	next    limiter.FullStore
	front   limiter.Front // next, once refusals are remembered
	returns time.Duration // how long charges may wait for their return
}

// Build composes a chain. It does not wait for Redis.
func Build(c Config) (*Chain, error) {
	b := &builder{Config: c}
	b.Local = memory.New(c.Memory)
	b.next, b.Counters = b.Local, b.Local
	b.front = limiter.NoDenied{FullStore: b.Local} // it is as fast as a memory of refusals
	if c.Redis != nil {
		var err error
		if b.Shared, err = redisstore.Open(*c.Redis); err != nil {
			return nil, err
		}
		b.next, b.Counters = b.Shared, b.Shared
	}
	for _, l := range slices.Backward(allLayers) {
		if l.needed(b) {
			l.put(b)
		}
	}
	return &Chain{Precheck: b.front, Take: b.front, Return: b.front, Reset: b.front, Peek: peeker{b.front}, Layers: b.Layers}, nil
}

func (b *builder) budget() time.Duration { return cmp.Or(b.Redis.Timeout, redisstore.DefaultTimeout) }

func (b *builder) fallBack() {
	b.fallback = limiter.NewFallback(b.next, b.Local, b.Nodes, b.Failed)
	b.next = b.fallback
}

func (b *builder) spread() {
	spread := limiter.NewSpread(b.next, b.budget())
	b.next, b.returns = spread, spread.Returns()
}

func (b *builder) lease() {
	b.Leases = lease.New(lease.Config{Next: b.next, Grants: b.Shared, Nodes: b.Nodes, Returns: b.returns})
	b.next = b.Leases
}

func (b *builder) report() {
	b.Reports = report.New(report.Config{
		Next: b.next, Reporter: b.Shared, Local: b.fallback, Nodes: b.Nodes, Trip: b.budget(), Failed: b.Failed,
	})
	b.next = b.Reports
}

func (b *builder) putDenied() {
	b.denied = limiter.NewDenied(b.next, b.DeniedMemory, b.returns)
	b.front = b.denied
}

// escrow is in front of the memory of refusals because it must hear all demand.
func (b *builder) escrow() {
	b.Escrows = escrow.New(b.front, nil)
	b.front = b.Escrows
}

func (b *builder) tally() {
	b.Tallies = tally.New(tally.Config{Next: b.front, Merger: b.Counters, Node: b.Node})
	b.front = b.Tallies
}

type peeker struct{ limiter.Taker }

// Peek implements Peeker.
func (p peeker) Peek(ctx context.Context, checks []limiter.Check, d *limiter.Decision) error {
	for i := range checks {
		checks[i].Peek = true
	}
	return p.TakeAfter(ctx, checks, d, limiter.PrecheckResult{CheckedAt: time.Now()})
}

// ForgetInactive forgets what layers know of limits that are no longer active. holds may be called
// later, by several goroutines.
func (p *Layers) ForgetInactive(holds func(*limiter.Limit) bool) {
	if p.Shared != nil {
		p.denied.ForgetInactive(holds)
		p.Leases.ForgetInactive(holds)
		p.Reports.ForgetInactive(holds)
	}
}

// Close returns what this process holds, and closes the connections to Redis.
func (p *Layers) Close() {
	if p.Shared != nil {
		p.Reports.Close()
		p.Leases.Close() // while the store still takes back what they hold
		p.fallback.Close()
		_ = p.Shared.Close()
	}
}
