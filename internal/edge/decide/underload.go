package decide

import (
	"context"
	"sync/atomic"

	"github.com/weir-edge/weir/pkg/limiter"
	"github.com/weir-edge/weir/pkg/limiter/memory"
	"github.com/weir-edge/weir/pkg/limiter/rules"
)

// UnderLoad lowers the limits that follow load by the utilization of each upstream group,
// and reports which requests were refused only because of that.
type UnderLoad struct {
	// Nodes returns how many nodes share the store. Each counts its share.
	Nodes func() int
	// Wanted is called with the group of each request that was refused only because a limit
	// had been lowered.
	Wanted func(upstream int)

	followed []atomic.Int64 // in thousandths, by group
	gaps     *memory.Store  // what full limits would have passed in addition
}

// gapKeys bounds the keys whose refusals are counted separately. If a key is evicted, its demand is
// overestimated until its window ends.
const gapKeys = 100_000

// NewUnderLoad returns an UnderLoad for the given number of upstream groups, none of them
// busy.
func NewUnderLoad(groups int, nodes func() int, wanted func(upstream int)) *UnderLoad {
	return &UnderLoad{Nodes: nodes, Wanted: wanted, followed: make([]atomic.Int64, groups), gaps: memory.New(memory.Config{MaxKeys: gapKeys})}
}

// Set sets the utilization, in thousandths, that the limits of requests to a group follow.
func (u *UnderLoad) Set(upstream int, utilization int64) { u.followed[upstream].Store(utilization) }

// Utilization returns what was set.
func (u *UnderLoad) Utilization(upstream int) int64 { return u.followed[upstream].Load() }

// Lower gives the checks of a request the limits that apply at the load of its upstreams.
func (d *Decider) Lower(r *Request) {
	if d.UnderLoad == nil || !anyFollows(r.Match.Rules) {
		return
	}
	utilization := d.UnderLoad.Utilization(d.Routes.find(&r.Match))
	for i := range r.Match.Checks {
		c := &r.Match.Checks[i]
		if c.Limit.UnderLoad == nil {
			continue
		}
		c.Limit = c.Limit.At(utilization)
		c.Cost = min(c.Cost, c.Limit.MaxCost()) // a cost stated in a header may now be too high
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

// want reports a request that was refused only because limits had been lowered. A full
// limit would have passed only a certain number more in a window, and this node counts its
// share of that; the rest would have been refused anyway.
func (d *Decider) want(r *Request) {
	if d.UnderLoad == nil || r.Decision.StoreUnavailable || !anyFollows(r.Match.Rules) {
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
		d.UnderLoad.Wanted(d.Routes.find(&r.Match))
	}
}
