package across

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/weir-edge/weir/internal/edge/peer"
	"github.com/weir-edge/weir/pkg/limiter"
	"github.com/weir-edge/weir/pkg/limiter/escrow"
	"github.com/weir-edge/weir/pkg/limiter/global"
	"github.com/weir-edge/weir/pkg/limiter/rules"
)

// Limits in escrow need no exchange to hold: each region's store enforces the region's part
// of a window. The owner of a key asks the other regions for rights of it when it runs short;
// their stores charge what they give before they answer, and this region's store adds it. All
// that moved is counted in the stores, so an owner may die, be two, or ask again at any time.

// Escrow is what limits in escrow need.
type Escrow struct {
	// Checks decides by this region's parts.
	Checks *escrow.Store
	// Mover is this region's store.
	Mover limiter.Mover
}

const (
	// askEvery is how often a region asks for rights of one key.
	askEvery = 250 * time.Millisecond
	// shortFor is for how long a node's word that a key runs short holds.
	shortFor = time.Second
	// maxHoldings bounds the keys of a partition that are watched. Others keep their parts.
	maxHoldings = maxKeys / Partitions
)

// holdings are the keys in escrow of one partition.
type holdings struct {
	mu   sync.Mutex
	keys map[string]*holding
}

// holding is what this node knows of a key in the present window.
type holding struct {
	limit   *limiter.Limit // the whole
	tier    string
	demand  global.Demand
	start   int64
	left    int64
	got     map[string]int64 // by region
	burned  bool
	shortAt time.Duration
	asked   time.Duration
	used    time.Duration
}

// escrowPlace returns this region's number among all by name, so that their order, which
// nodes may know differently for a moment, changes nobody's part.
func (x *Exchange) escrowPlace() (self, regions int) {
	list := x.config.Directory.Regions()
	known := false
	for _, name := range list {
		known = known || name == x.config.Region
		if name < x.config.Region {
			self++
		}
	}
	if !known {
		return 0, 0
	}
	return self, len(list)
}

// placeEscrow tells those who decide where this region stands.
func (x *Exchange) placeEscrow() { x.config.Escrow.Checks.SetPlace(x.escrowPlace()) }

// part returns this region's part of a key's limit, or nil while that is unknown.
func (x *Exchange) part(l *limiter.Limit, key string) *limiter.Limit {
	self, regions := x.escrowPlace()
	if regions == 0 {
		return nil
	}
	return x.config.Escrow.Checks.Part(l, global.Part(l, key, self, regions))
}

// inEscrow returns the limit of a key, or nil if none in escrow has it here.
func (x *Exchange) inEscrow(key, tier string) *limiter.Limit {
	l := x.config.Limit(rules.RuleOf(key), tier)
	if l == nil || l.Global == nil || !l.Global.Escrow {
		return nil
	}
	return l
}

// holding returns what is known of a key in the window that is now. The holdings are locked.
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
	if start := wall - wall%l.Window.Microseconds(); k.limit != l || k.start != start {
		k.limit, k.start, k.got, k.burned = l, start, map[string]int64{}, false
		k.left = 0
		if part := x.part(l, key); part != nil {
			k.left = part.Limit
		}
	}
	return k
}

// admitted notes what this region has let pass of a key.
func (x *Exchange) admitted(l *limiter.Limit, key string, start, count int64) {
	h := &x.holdings[partitionOf(key)]
	h.mu.Lock()
	defer h.mu.Unlock()
	if k := x.holding(h, l, key); k != nil {
		k.demand.Admitted(start, count, x.config.Clock())
	}
}

// exchangeRights tells owners which keys run short here, and asks other regions for rights of
// those that this node owns.
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

// short notes keys that run short in this region.
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

// askForRights asks the owners in other regions for what keys lack here.
func (x *Exchange) askForRights(ctx context.Context, regions []string) {
	now, wall := x.config.Clock(), x.config.Wall()
	asks := map[peer.Node][]global.Claim{}
	for p := range x.holdings {
		h := &x.holdings[p]
		h.mu.Lock()
		for key, k := range h.keys {
			if k.shortAt == 0 || now-k.shortAt > shortFor || now-k.asked < askEvery {
				continue
			}
			k = x.holding(h, k.limit, key)
			rest := time.Duration(k.start+k.limit.Window.Microseconds()-wall) * time.Microsecond
			need := k.demand.Need(k.limit, rest, now)
			if k.burned || need <= k.left {
				continue
			}
			k.asked = now
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

// receiveRights adds what another region has given to what may be spent here.
func (x *Exchange) receiveRights(ctx context.Context, region string, list []global.Claim) {
	var moves []limiter.Move
	for i := range list {
		c := &list[i]
		if l := x.inEscrow(c.Key, c.Tier); l != nil && c.Units > 0 {
			if part := x.part(l, c.Key); part != nil {
				moves = append(moves, limiter.Move{Limit: part, Key: []byte(c.Key), Region: region, Start: c.Start, Got: c.Units})
			}
		}
	}
	x.move(ctx, moves)
	for i := range moves {
		m := &moves[i]
		if m.Err != nil {
			continue // the next answer says it again
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
	if _, regions := x.escrowPlace(); regions == 0 || from.Region == x.config.Region {
		return nil, fmt.Errorf("rights are for nodes of other regions, and %q is none that is known here", from.Region)
	}
	claims, err := global.ParseClaims(body)
	if err != nil {
		return nil, err
	}
	moves := make([]limiter.Move, 0, len(claims))
	asked := make([]*global.Claim, 0, len(claims))
	for i := range claims {
		c := &claims[i]
		l := x.inEscrow(c.Key, c.Tier)
		if l == nil || c.Start%l.Window.Microseconds() != 0 {
			continue // no such rule is active here
		}
		if part := x.part(l, c.Key); part != nil {
			moves = append(moves, limiter.Move{Limit: part, Key: []byte(c.Key), Region: from.Region, Start: c.Start})
			asked = append(asked, c)
		}
	}
	x.move(ctx, moves) // what is left?
	before := make([]int64, len(moves))
	for i := range moves {
		m := &moves[i]
		before[i] = m.Gave
		need, most := x.need(asked[i].Key, m)
		m.Keep = global.Kept(m.Left, need, asked[i].Left, asked[i].Need)
		if m.Left <= most {
			m.Upto = asked[i].Units
		}
	}
	x.move(ctx, moves)
	var answer []global.Claim
	for i := range moves {
		if m := &moves[i]; m.Err == nil && m.Gave > 0 {
			x.gave.Add(max(0, m.Gave-before[i]))
			answer = append(answer, global.Claim{Key: asked[i].Key, Tier: asked[i].Tier, Start: m.Start, Units: m.Gave})
		}
	}
	return global.AppendClaims(nil, answer), nil
}

// need returns what this region expects to be asked for of a key until its window ends, and
// the most that its store may have left by what this node knows. More is left only if the
// store has lost what was spent: that must not be given.
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

// sweepHoldings forgets keys that nobody asks for.
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

// RightsMoved returns how many units this node has moved to other regions, and from them.
func (x *Exchange) RightsMoved() (gave, received int64) { return x.gave.Load(), x.received.Load() }

// Right returns this region's part of a key's limit, and what may still be spent in the
// window that is now.
func (x *Exchange) Right(ctx context.Context, l *limiter.Limit, key string) (part, left int64, err error) {
	p := x.part(l, key)
	if p == nil {
		return 0, 0, fmt.Errorf("the regions are unknown; publish a topology, or list all regions in peer.regions")
	}
	wall := x.config.Wall()
	one := []limiter.Move{{Limit: p, Key: []byte(key), Start: wall - wall%l.Window.Microseconds()}}
	x.move(ctx, one)
	return p.Limit, one[0].Left, one[0].Err
}
