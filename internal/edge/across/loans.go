package across

import (
	"context"
	"time"

	"github.com/weir-edge/weir/internal/edge/peer"
	"github.com/weir-edge/weir/pkg/limiter"
	"github.com/weir-edge/weir/pkg/limiter/global"
)

// Tokens of buckets in escrow move as rights do, with one extra step. Before asking, this
// region's store states the time of the request, because it accepts no gift made much later,
// and how many received tokens the giver may consider settled.

// needAhead is how far ahead a region asks for tokens.
const needAhead = 2 * time.Second

// borrow is a key that needs tokens from other regions, or owes them word of settled ones.
type borrow struct {
	limit       *limiter.Limit
	part        *limiter.Limit
	key, tier   string
	partition   int
	lacks, need int64
}

// wanted says what other regions are to be asked for. The holdings are locked.
func (x *Exchange) wanted(key string, k *holding, now time.Duration, wall int64) (b borrow, ok bool) {
	short := k.shortAt != 0 && now-k.shortAt <= shortFor
	owes := false
	for _, till := range k.owes {
		owes = owes || now < till
	}
	if now-k.asked < askEvery || !short && !owes || x.inEscrow(key, k.tier) != k.limit {
		return b, false
	}
	b = borrow{limit: k.limit, part: x.part(k.limit, key, wall), key: key, tier: k.tier, partition: partitionOf(key)}
	if b.part == nil {
		return b, false
	}
	if short {
		b.need = k.demand.Need(k.limit, needAhead, now)
		b.lacks = max(0, b.need-k.left)
	}
	if b.lacks == 0 && !owes {
		return b, false
	}
	k.asked, k.used = now, now
	return b, true
}

// borrow asks the owners in other regions for tokens.
func (x *Exchange) borrow(ctx context.Context, regions []string, list []borrow) {
	var moves []limiter.Move
	var from []*borrow
	var owners []peer.Node
	for i := range list {
		b := &list[i]
		for _, region := range regions {
			if region == x.config.Region {
				continue
			}
			if owner, ok := x.config.Directory.Owner(region, names[b.partition]); ok {
				moves = append(moves, limiter.Move{Limit: b.part, Key: []byte(b.key), Region: region, Loan: limiter.Loan{Step: limiter.LoanAsk}})
				from, owners = append(from, b), append(owners, owner)
			}
		}
	}
	x.move(ctx, moves)
	asks := map[peer.Node][]global.Claim{}
	for i := range moves {
		m, b := &moves[i], from[i]
		if m.Err != nil {
			continue // the next time
		}
		c := global.Claim{Key: b.key, Tier: b.tier, Start: m.Asked, Units: m.Known, Left: m.Left, Need: b.need, ID: m.ID, Known: m.Closed}
		c.Units += (b.lacks + int64(len(regions)) - 2) / int64(len(regions)-1)
		asks[owners[i]] = append(asks[owners[i]], c)
	}
	x.claim(ctx, asks, x.receiveTokens)
}

// claim asks owners in other regions for rights or tokens, and passes on what each gave.
func (x *Exchange) claim(ctx context.Context, asks map[peer.Node][]global.Claim, receive func(context.Context, string, []global.Claim)) {
	for owner, list := range asks {
		x.call(ctx, owner, TopicRights, func() []byte { return global.AppendClaims(nil, list) }, func(reply []byte) {
			if got, err := global.ParseClaims(reply); err == nil { // a damaged answer counts as lost
				receive(ctx, owner.Region, got)
			}
		})
	}
}

// receiveTokens adds tokens from another region.
func (x *Exchange) receiveTokens(ctx context.Context, region string, list []global.Claim) {
	var moves []limiter.Move
	for i := range list {
		c := &list[i]
		l := x.inEscrow(c.Key, c.Tier)
		if l == nil || l.Algorithm != limiter.TokenBucket || c.Units-c.Known > l.MaxCost() {
			continue // no region has as many to lend
		}
		if part := x.part(l, c.Key, x.config.Wall()); part != nil {
			moves = append(moves, limiter.Move{
				Limit: part, Key: []byte(c.Key), Region: region, Got: c.Units,
				Loan: limiter.Loan{Step: limiter.LoanTake, ID: c.ID, Asked: c.Start, Closed: c.Known},
			})
		}
	}
	forgets := make([]int64, len(moves))
	for i := range moves {
		forgets[i] = moves[i].Closed
	}
	x.move(ctx, moves)
	now := x.config.Clock()
	for i := range moves {
		m := &moves[i]
		if m.Err != nil {
			continue // the next answer repeats it
		}
		h := &x.holdings[partitionOf(string(m.Key))]
		h.mu.Lock()
		if k := h.keys[string(m.Key)]; k != nil && k.limit == m.Limit.Whole {
			if before, known := k.got[region]; known {
				x.received.Add(max(0, m.Known-before))
			} else {
				x.received.Add(max(0, m.Known-forgets[i])) // this node's first request
			}
			k.got[region], k.left = m.Known, m.Left
			delete(k.owes, region)
			if m.Known > forgets[i] {
				k.owes[region] = now + limiter.LoanHeld
			}
		}
		h.mu.Unlock()
	}
}

// lend answers a region's request for tokens.
func (x *Exchange) lend(ctx context.Context, region string, claims []*global.Claim) (answer []global.Claim) {
	var moves []limiter.Move
	var asked []*global.Claim
	for _, c := range claims {
		l := x.inEscrow(c.Key, c.Tier)
		if l == nil || l.Algorithm != limiter.TokenBucket {
			continue
		}
		if part := x.part(l, c.Key, x.config.Wall()); part != nil {
			moves = append(moves, limiter.Move{Limit: part, Key: []byte(c.Key), Region: region})
			asked = append(asked, c)
		}
	}
	x.move(ctx, moves) // learn what is left
	before := make([]int64, len(moves))
	for i := range moves {
		m, c := &moves[i], asked[i]
		before[i] = m.Gave
		m.Keep = global.Kept(m.Left, x.needs(c.Key), c.Left, c.Need)
		m.Upto, m.Loan = c.Units, limiter.Loan{Step: limiter.LoanGive, ID: c.ID, Closed: c.Known}
	}
	x.move(ctx, moves)
	for i := range moves {
		m, c := &moves[i], asked[i]
		if m.Err != nil || m.Gave == 0 || !x.config.Escrow.Checks.Holds(m.Limit, m.Key, m.At) {
			continue
		}
		if before[i] <= m.Gave {
			x.gave.Add(m.Gave - before[i])
		} else { // the other region began new counters
			x.gave.Add(m.Gave)
		}
		answer = append(answer, global.Claim{Key: c.Key, Tier: c.Tier, Start: c.Start, Units: m.Gave, ID: c.ID, Known: m.Closed})
	}
	return answer
}

// needs returns the demand that this region expects for a key soon.
func (x *Exchange) needs(key string) int64 {
	h := &x.holdings[partitionOf(key)]
	h.mu.Lock()
	defer h.mu.Unlock()
	if k := h.keys[key]; k != nil {
		return k.demand.Need(k.limit, needAhead, x.config.Clock())
	}
	return 0
}
