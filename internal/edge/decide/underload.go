package decide

import (
	"context"
	"sync/atomic"

	"github.com/weir-edge/weir/pkg/limiter"
	"github.com/weir-edge/weir/pkg/limiter/memory"
	"github.com/weir-edge/weir/pkg/limiter/rules"
)

// UnderLoad lowers the limits that follow load, by the utilization of each upstream group,
// and tells which requests were refused only for that.
type UnderLoad struct {
	// Nodes returns how many nodes share the store. Each counts its part.
	Nodes func() int
	// Wanted is called with the group of each request that was refused only because a limit
	// had been lowered.
	Wanted func(upstream int)

	followed []atomic.Int64 // in thousandths, by group
	gaps     *memory.Store  // what full limits would have let pass in addition
}

// gapKeys bounds the keys whose refusals are told apart; of a key that was evicted, too many
// requests are demand until its window ends.
const gapKeys = 100_000

// NewUnderLoad returns one for so many upstream groups, none of which is busy.
func NewUnderLoad(groups int, nodes func() int, wanted func(upstream int)) *UnderLoad {
	return &UnderLoad{Nodes: nodes, Wanted: wanted, followed: make([]atomic.Int64, groups), gaps: memory.New(memory.Config{MaxKeys: gapKeys})}
}

// Set says what the limits of requests to a group follow from now on, in thousandths.
func (u *UnderLoad) Set(upstream int, utilization int64) { u.followed[upstream].Store(utilization) }

// Utilization returns what was set.
func (u *UnderLoad) Utilization(upstream int) int64 { return u.followed[upstream].Load() }

// Lower gives the checks of a request the limits that hold at the load of its upstreams.
func (d *Decider) Lower(r *Request) {
	if d.UnderLoad == nil || !anyFollows(r.Match.Rules) {
		return
	}
	utilization := d.UnderLoad.Utilization(d.Routes.find(asked{r}, &r.scratch))
	for i := range r.Match.Checks {
		c := &r.Match.Checks[i]
		if c.Limit.UnderLoad == nil {
			continue
		}
		c.Limit = c.Limit.At(utilization)
		c.Cost = min(c.Cost, c.Limit.MaxCost()) // one that a header states may be too high now
	}
}

func anyFollows(list []*rules.Compiled) bool {
	for _, rule := range list {
		if rule.UnderLoad != nil {
			return true
		}
	}
	return false
}

// want reports a request that was refused only because limits had been lowered. A full limit
// would have let pass only so many more in a window, of which this node saw its part; the
// rest would have been refused anyway.
func (d *Decider) want(r *Request) {
	if d.UnderLoad == nil || r.Decision.Unavailable || !anyFollows(r.Match.Rules) {
		return
	}
	refused := r.refused[:0]
	for i := range r.Decision.Results {
		c := &r.Match.Checks[i]
		if !r.Decision.Results[i].Refuses(c) {
			continue
		}
		gap := c.Limit.Gap()
		if gap == nil {
			return // refused anyway
		}
		gap = gap.Share(d.UnderLoad.Nodes())
		refused = append(refused, limiter.Check{Limit: gap, Key: c.Key, Cost: min(c.Cost, gap.MaxCost())})
	}
	r.refused = refused
	if len(refused) == 0 {
		return
	}
	if d.UnderLoad.gaps.Take(context.Background(), refused, &r.gaps) == nil && r.gaps.Allowed {
		d.UnderLoad.Wanted(d.Routes.find(asked{r}, &r.scratch))
	}
}
