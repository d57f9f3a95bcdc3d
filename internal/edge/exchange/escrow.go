package exchange

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/weir-edge/weir/internal/edge/peer"
	"github.com/weir-edge/weir/pkg/limiter"
	"github.com/weir-edge/weir/pkg/limiter/escrow"
	"github.com/weir-edge/weir/pkg/limiter/global"
	"github.com/weir-edge/weir/pkg/limiter/rules"
)

// Limits in escrow hold without an exchange: each region's store enforces the region's part of
// a window. When a key runs short, its owner asks the other regions for rights. Their stores
// charge what they give before they answer, and this region's store adds it. The stores count
// all moves, so owners may die, exist twice, or repeat a request at any time.

// Escrow holds what limits in escrow need.
type Escrow struct {
	// Checks decides by this region's parts.
	Checks *escrow.Store
	// Mover and Terms are this region's store.
	Mover limiter.Mover
	Terms limiter.TermStore
	// Needed reports whether any limit is in escrow; nil means yes.
	Needed func() bool
}

const (
	// askEvery is how often a region asks for rights to one key.
	askEvery = 250 * time.Millisecond
	// shortFor is how long a node's report that a key runs short stays valid.
	shortFor = time.Second
	// maxHoldings bounds the watched keys of a partition. Other keys keep their initial parts.
	maxHoldings = maxKeys / Partitions
)

// holdings are one partition's keys in escrow.
type holdings struct {
	mu   sync.Mutex
	keys map[string]*holding
}

// holding is this node's knowledge of a key in the current window.
type holding struct {
	limit     *limiter.Limit // the whole
	tier      string
	demand    global.Demand
	start     int64
	left      int64
	got       map[string]int64 // by region
	gave      int64            // to all
	burned    bool
	shortAt   time.Duration
	requested time.Duration
	used      time.Duration
}

// part returns this region's part of a key's limit in the window that contains a time, or nil
// if this region has none.
func (x *Exchange) part(l *limiter.Limit, key string, at int64) *limiter.Limit {
	return x.config.Escrow.Checks.At(l, []byte(key), at)
}

// inEscrow returns a key's limit, or nil if no rule here has it in escrow.
func (x *Exchange) inEscrow(key, tier string) *limiter.Limit {
	l := x.config.Limit(rules.RuleOf(key), tier)
	if l == nil || l.Global == nil || !l.Global.Escrow {
		return nil
	}
	return l
}

// holding returns a key's entry for the current window. The holdings are locked.
func (x *Exchange) holding(h *holdings, l *limiter.Limit, key string) *holding {
	k := h.keys[key]
	if k == nil {
		if len(h.keys) >= maxHoldings {
			return nil
		}
		if h.keys == nil {
			h.keys = map[string]*holding{}
		}
		k = &holding{tier: l.Global.Tier}
		h.keys[key] = k
	}
	k.used = x.config.Clock()
	wall := x.config.Wall()
	if start := l.WindowStart(wall); k.limit != l || k.start != start {
		k.limit, k.start, k.got, k.gave, k.burned = l, start, map[string]int64{}, 0, false
		k.left = 0
		if part := x.part(l, key, wall); part != nil {
			k.left = part.MaxCost()
		}
	}
	return k
}

func (x *Exchange) admitted(l *limiter.Limit, key string, start, count int64) {
	h := &x.holdings[partitionOf(key)]
	h.mu.Lock()
	defer h.mu.Unlock()
	if k := x.holding(h, l, key); k != nil {
		k.demand.Admitted(start, count, x.config.Clock())
	}
}

// exchangeRights reports keys that run short here to their owners, and asks other regions for
// rights to those that this node owns.
func (x *Exchange) exchangeRights(ctx context.Context, regions []string) {
	byOwner := map[peer.Node][]global.Claim{}
	for _, w := range x.config.Escrow.Checks.Drain() {
		owner := x.owners[partitionOf(w.Key)]
		byOwner[owner] = append(byOwner[owner], global.Claim{Key: w.Key, Tier: w.Limit.Global.Tier, Units: w.Refused, Left: w.Left})
	}
	for owner, list := range byOwner {
		if x.config.Directory.IsSelf(owner) {
			x.short(list)
			continue
		}
		for len(list) > 0 {
			some := list[:min(len(list), global.MaxBatch)]
			list = list[len(some):]
			x.call(ctx, owner, TopicShort, func() []byte { return global.AppendClaims(nil, some) }, func([]byte) {})
		}
	}
	x.askForRights(ctx, regions)
}

// short records keys that run short in this region.
func (x *Exchange) short(list []global.Claim) {
	now := x.config.Clock()
	for i := range list {
		c := &list[i]
		l := x.inEscrow(c.Key, c.Tier)
		if l == nil {
			continue
		}
		h := &x.holdings[partitionOf(c.Key)]
		h.mu.Lock()
		if k := x.holding(h, l, c.Key); k != nil {
			k.demand.Refused(c.Units, now)
			k.left, k.shortAt = c.Left, now
		}
		h.mu.Unlock()
	}
}

// Short answers a node of this region.
func (x *Exchange) Short(_ context.Context, from peer.Node, body []byte) ([]byte, error) {
	if from.Region != x.config.Region {
		return nil, fmt.Errorf("what runs short is for nodes of region %s", x.config.Region)
	}
	list, err := global.ParseClaims(body)
	if err == nil {
		x.short(list)
	}
	return nil, err
}

// askForRights asks owners in other regions for the rights that keys lack here.
func (x *Exchange) askForRights(ctx context.Context, regions []string) {
	now, wall := x.config.Clock(), x.config.Wall()
	asks := map[peer.Node][]global.Claim{}
	for p := range x.holdings {
		h := &x.holdings[p]
		h.mu.Lock()
		for key, k := range h.keys {
			if k.shortAt == 0 || now-k.shortAt > shortFor || now-k.requested < askEvery {
				continue
			}
			k = x.holding(h, k.limit, key)
			rest := time.Duration(k.start+k.limit.Window.Microseconds()-wall) * time.Microsecond
			need := k.demand.Need(k.limit, rest, now)
			if k.burned || need <= k.left || x.part(k.limit, key, k.start) == nil {
				continue
			}
			k.requested = now
			each := (need - k.left + int64(len(regions)) - 2) / int64(len(regions)-1)
			for _, region := range regions {
				if region == x.config.Region {
					continue
				}
				if owner, ok := x.config.Directory.Owner(region, names[p]); ok && len(asks[owner]) < global.MaxBatch {
					asks[owner] = append(asks[owner], global.Claim{Key: key, Tier: k.tier, Start: k.start, Units: k.got[region] + each, Need: need, Left: k.left})
				}
			}
		}
		h.mu.Unlock()
	}
	for owner, list := range asks {
		x.call(ctx, owner, TopicRights, func() []byte { return global.AppendClaims(nil, list) }, func(reply []byte) {
			if got, err := global.ParseClaims(reply); err == nil { // a damaged answer counts as lost
				x.receiveRights(ctx, owner.Region, got)
			}
		})
	}
}

// receiveRights adds rights from another region to this region's store.
func (x *Exchange) receiveRights(ctx context.Context, region string, list []global.Claim) {
	var moves []limiter.Move
	for i := range list {
		c := &list[i]
		if l := x.inEscrow(c.Key, c.Tier); l != nil && c.Units > 0 {
			if part := x.part(l, c.Key, c.Start); part != nil {
				moves = append(moves, limiter.Move{Limit: part, Key: []byte(c.Key), Region: region, Start: c.Start, Got: c.Units})
			}
		}
	}
	x.move(ctx, moves)
	for i := range moves {
		m := &moves[i]
		if m.Err != nil {
			continue // the next answer repeats it
		}
		h := &x.holdings[partitionOf(string(m.Key))]
		h.mu.Lock()
		if k := h.keys[string(m.Key)]; k != nil && k.start == m.Start {
			x.received.Add(max(0, m.Known-k.got[region]))
			k.got[region] = max(k.got[region], m.Known)
			k.left, k.burned = m.Left, m.Burned
		}
		h.mu.Unlock()
	}
}

func (x *Exchange) move(ctx context.Context, moves []limiter.Move) {
	if len(moves) > 0 {
		bounded, cancel := context.WithTimeout(ctx, time.Second)
		x.config.Escrow.Mover.Move(bounded, moves)
		cancel()
	}
}

// Rights answers a node of another region that asks for rights.
func (x *Exchange) Rights(ctx context.Context, from peer.Node, body []byte) ([]byte, error) {
	if from.Region == x.config.Region || !slices.Contains(x.config.Directory.Regions(), from.Region) {
		return nil, fmt.Errorf("rights are for nodes of other regions, and %q is none that is known here", from.Region)
	}
	claims, err := global.ParseClaims(body)
	if err != nil {
		return nil, err
	}
	moves := make([]limiter.Move, 0, len(claims))
	requested := make([]*global.Claim, 0, len(claims))
	for i := range claims {
		c := &claims[i]
		l := x.inEscrow(c.Key, c.Tier)
		if l == nil || c.Start%l.Window.Microseconds() != 0 {
			continue // no such rule is active here
		}
		if part := x.part(l, c.Key, c.Start); part != nil {
			moves = append(moves, limiter.Move{Limit: part, Key: []byte(c.Key), Region: from.Region, Start: c.Start})
			requested = append(requested, c)
		}
	}
	x.move(ctx, moves) // learn what is left
	before := make([]int64, len(moves))
	for i := range moves {
		m := &moves[i]
		before[i] = m.Gave
		need, most := x.need(requested[i].Key, m)
		m.Keep = global.Kept(m.Left, need, requested[i].Left, requested[i].Need)
		if m.Left <= most {
			m.Upto = requested[i].Units
		}
	}
	x.move(ctx, moves)
	var answer []global.Claim
	for i := range moves {
		if m := &moves[i]; m.Err == nil && m.Gave > 0 {
			x.gave.Add(max(0, m.Gave-before[i]))
			x.given(requested[i].Key, m.Start, m.Gave-before[i])
			answer = append(answer, global.Claim{Key: requested[i].Key, Tier: requested[i].Tier, Start: m.Start, Units: m.Gave})
		}
	}
	return global.AppendClaims(nil, answer), nil
}

// given records what this region gave of a key.
func (x *Exchange) given(key string, start, units int64) {
	h := &x.holdings[partitionOf(key)]
	h.mu.Lock()
	defer h.mu.Unlock()
	if k := h.keys[key]; k != nil && k.start == start {
		k.gave += max(0, units)
	}
}

// need returns the demand that this region expects for a key until its window ends, and the most
// that its store may have left as far as this node knows. A store with more left has lost what
// was spent, and must not give it away.
func (x *Exchange) need(key string, m *limiter.Move) (need, most int64) {
	h := &x.holdings[partitionOf(key)]
	h.mu.Lock()
	defer h.mu.Unlock()
	k := h.keys[key]
	if k == nil {
		return 0, m.Limit.Limit
	}
	most = m.Limit.Limit - k.demand.Count(m.Start)
	if k.start == m.Start {
		for _, got := range k.got {
			most += got
		}
	}
	wall, window := x.config.Wall(), k.limit.Window.Microseconds()
	return k.demand.Need(k.limit, time.Duration(window-wall%window)*time.Microsecond, x.config.Clock()), most
}

// sweepHoldings drops keys that are no longer requested.
func (x *Exchange) sweepHoldings() {
	now := x.config.Clock()
	for p := range x.holdings {
		h := &x.holdings[p]
		h.mu.Lock()
		for key, k := range h.keys {
			if now-k.used > keepFor {
				delete(h.keys, key)
			}
		}
		h.mu.Unlock()
	}
}

// RightsMoved returns how many units this node gave to other regions, and received.
func (x *Exchange) RightsMoved() (gave, received int64) { return x.gave.Load(), x.received.Load() }

// RightsHeld returns, by rule, the units of the current windows that this region may spend or
// has spent, over the keys that this node owns: initial parts and moves.
func (x *Exchange) RightsHeld() map[string]int64 {
	held := map[string]int64{}
	for p := range x.holdings {
		h := &x.holdings[p]
		h.mu.Lock()
		for key, k := range h.keys {
			wall := x.config.Wall()
			if x.inEscrow(key, k.tier) != k.limit || k.start != k.limit.WindowStart(wall) {
				continue
			}
			if part := x.part(k.limit, key, wall); part != nil {
				held[k.limit.Rule] += part.MaxCost()
			}
			for _, got := range k.got {
				held[k.limit.Rule] += got
			}
			held[k.limit.Rule] -= k.gave
		}
		h.mu.Unlock()
	}
	return held
}

// Right returns this region's part of a key's limit, and what remains to spend in the current
// window.
func (x *Exchange) Right(ctx context.Context, l *limiter.Limit, key string) (part, left int64, err error) {
	wall := x.config.Wall()
	p := x.part(l, key, wall)
	if p == nil {
		return 0, 0, fmt.Errorf("no majority of the regions has reserved windows for this one; see that they reach each other, and that a topology or peer.regions lists all of them")
	}
	one := []limiter.Move{{Limit: p, Key: []byte(key), Start: l.WindowStart(wall)}}
	x.move(ctx, one)
	return p.MaxCost(), one[0].Left, one[0].Err
}
