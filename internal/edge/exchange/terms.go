package exchange

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/weir-edge/weir/internal/edge/peer"
	"github.com/weir-edge/weir/pkg/limiter"
	"github.com/weir-edge/weir/pkg/limiter/global"
)

// Each node asks the stores of all regions to promise its region the coming windows: its own
// store directly, the others through one of their nodes. The region holds what a majority has
// promised, and the node allows it to be spent. No node depends on others of its region for that.

const (
	// renewEvery is how often a node asks, and askAgain how often while it holds nothing.
	renewEvery = 5 * time.Second
	askAgain   = 500 * time.Millisecond
)

// tenure is this node's knowledge of what its region holds.
type tenure struct {
	mu sync.Mutex
	global.Tenure
	ready     bool // the store may be spent
	settling  bool
	asking    bool
	requested time.Duration
	division  int64 // as of the last request
}

// renew asks for windows when it is time.
func (x *Exchange) renew(ctx context.Context) {
	t := &x.tenure
	now := x.config.Clock()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.asking || !t.SetRegions(x.config.Region, x.config.Directory.Regions(), now) {
		return
	}
	every := renewEvery
	if !t.ready || x.Parts() == 0 {
		every = askAgain
	}
	if t.division == t.Division() && now-t.requested < every {
		return
	}
	t.asking, t.requested, t.division = true, now, t.Division()
	terms := t.Ask(x.config.Wall(), draw())
	x.calls.Go(func() { x.renewHere(ctx, terms) })
}

// draw returns a random number for a store's life.
func draw() int64 { return 1 + rand.Int64N(limiter.MaxLife-1) }

// renewHere asks this region's store, and then the other regions.
func (x *Exchange) renewHere(ctx context.Context, terms []limiter.Term) {
	t := &x.tenure
	x.register(ctx, terms)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.asking = false
	ask := t.OwnAnswered(terms)
	if len(ask) == 0 {
		return
	}
	body := global.AppendTerms(nil, ask)
	regions, self := t.Regions()
	for i, region := range regions {
		owner, ok := x.config.Directory.Owner(region, "terms/"+x.config.Node)
		if i == self || !ok {
			continue
		}
		x.call(ctx, owner, TopicTerms, func() []byte { return body }, func(reply []byte) {
			list, err := global.ParseTerms(reply)
			if err != nil {
				return // a damaged answer counts as lost
			}
			t.mu.Lock()
			defer t.mu.Unlock()
			if now, _ := t.Regions(); slices.Equal(now, regions) {
				t.Hear(i, list)
				x.hold(ctx)
			}
		})
	}
	x.hold(ctx)
}

// register asks this region's store.
func (x *Exchange) register(ctx context.Context, terms []limiter.Term) {
	bounded, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	x.config.Escrow.Terms.Renew(bounded, terms)
}

// hold allows spending what all answers grant this region, once it is known whether its store
// may have lost what was spent. The tenure is locked.
func (x *Exchange) hold(ctx context.Context) {
	t := &x.tenure
	held := t.Held()
	settled, now, first := t.Settled(x.config.Clock())
	if t.ready = t.ready || settled; t.ready {
		x.config.Escrow.Checks.Hold(held)
	}
	if !settled && now && !t.settling {
		t.settling = true
		life := t.Life()
		x.calls.Go(func() { x.settle(ctx, life, first) })
	}
}

// settle allows spending from this region's store: immediately if it is the region's first, and
// otherwise from the next window on, because earlier spending is lost. A store that replaced the
// one with that life is judged again.
func (x *Exchange) settle(ctx context.Context, life int64, first bool) {
	t := &x.tenure
	as := limiter.SettledLater
	if first {
		as = limiter.WouldBeFirst
	}
	says := x.settleAs(ctx, life, as)
	if says == limiter.WouldBeFirst && x.open(ctx) {
		says = x.settleAs(ctx, life, limiter.SettledFirst)
	}
	if says == limiter.SettledLater {
		_ = x.config.Escrow.Terms.Reopen(ctx) // otherwise the first requests do it
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.settling = false // if it is not settled, the next answer tries again
	if says == limiter.SettledFirst || says == limiter.SettledLater {
		x.hold(ctx)
	}
}

// open allows spending windows that began before this region's store.
func (x *Exchange) open(ctx context.Context) bool {
	bounded, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	return x.config.Escrow.Terms.Open(bounded) == nil
}

// settleAs asks this region's store to be settled, and returns the result.
func (x *Exchange) settleAs(ctx context.Context, life int64, as limiter.Settling) limiter.Settling {
	t := &x.tenure
	t.mu.Lock()
	terms := t.Settle(x.config.Wall(), draw(), life, as)
	t.mu.Unlock()
	x.register(ctx, terms)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.OwnAnswered(terms) == nil {
		return limiter.Unsettled
	}
	return terms[0].Settled
}

// Terms answers another region's node that asks for windows.
func (x *Exchange) Terms(ctx context.Context, from peer.Node, body []byte) ([]byte, error) {
	list, err := global.ParseTerms(body)
	if err != nil {
		return nil, err
	}
	regions := slices.Sorted(slices.Values(x.config.Directory.Regions()))
	asker := slices.Index(regions, from.Region)
	if asker < 0 || from.Region == x.config.Region {
		return nil, fmt.Errorf("windows are reserved for nodes of other regions, and %q is none that is known here", from.Region)
	}
	var terms []limiter.Term
	division := global.Division(regions)
	for i := range list {
		c := &list[i]
		part := slices.Index(regions, c.Part)
		if c.Division != division || part < 0 || c.Holder != from.Region || part != asker && global.HeirOf(part, len(regions)) != asker {
			continue // nodes learn of a region at different times
		}
		terms = append(terms, limiter.Term{Division: c.Division, Part: c.Part, Holder: c.Holder, Life: max(1, c.Life), Until: c.Until, Draw: draw()})
	}
	x.register(ctx, terms)
	return global.AppendTerms(nil, slices.DeleteFunc(terms, func(t limiter.Term) bool { return t.Err != nil })), nil
}

// Parts returns how many regions' parts this one holds of windows that begin now.
func (x *Exchange) Parts() int { return x.config.Escrow.Checks.Held().Parts(x.config.Wall()) }
