package rules

import (
	"github.com/weir-edge/weir/pkg/limiter"
)

// UnderLoad says how a limit follows the load of upstreams: as their utilization rises from
// From to 1, the limit falls to Share of its full size.
type UnderLoad struct {
	From  float64 `yaml:"from" json:"from" required:"write from which utilization on the limit falls, as in 0.5"`               // 0 to 0.95: the utilization above which the limit falls
	Share float64 `yaml:"share" json:"share" required:"write what share of the limit is left at a utilization of 1, as in 0.2"` // 0.01 to 0.99: what is left of it at a utilization of 1
}

// Bounds of UnderLoad.
const (
	highestFrom   = 0.95 // above it, steps are finer than what nodes measure
	lowestShare   = 0.01
	highestShare  = 0.99
	lowestPassing = "the cost of %d can never pass at the lowest limit: at most %d fits; lower the cost or raise the share"
)

// underLoad makes the limits of a rule follow load.
func (v *reader) underLoad(r *Rule, c *Compiled) {
	u := r.UnderLoad
	if u == nil {
		return
	}
	before := len(v.p.list)
	if !(u.From >= 0 && u.From <= highestFrom) {
		v.bad("under_load.from", "must be between 0 and %g (got %g)", highestFrom, u.From)
	}
	if !(u.Share >= lowestShare && u.Share <= highestShare) {
		v.bad("under_load.share", "must be between %g and %g (got %g)", lowestShare, highestShare, u.Share)
	}
	v.loadFaults(r, c.Limit)
	if len(v.p.list) > before {
		return
	}
	limits := []*limiter.Limit{c.Limit}
	for name := range sorted(r.Tiers) {
		if l := c.Tiers[name]; l != nil {
			limits = append(limits, l)
		}
	}
	v.p.following += len(limits)
	if v.p.following > maxFollowing {
		return
	}
	slowest := c.Limit.Limit
	for _, l := range limits {
		slowest = min(slowest, limiter.FloorOf(l.Limit, u.Share))
	}
	for _, l := range limits {
		if l.Algorithm.IsBucket() {
			l.Slowest = slowest // a bucket lives until it has drained at the lowest limit
		}
		for _, fault := range l.Follow(u.From, u.Share) {
			v.bad("under_load.share", "%s of the lowest limit: %s", fault.Path, fault.Msg)
			return
		}
		if most := l.Floor().MaxCost(); c.Cost > most {
			v.bad("under_load.share", lowestPassing, c.Cost, most)
			return
		}
	}
	c.UnderLoad = u
}

// loadFaults reports why the limit cannot follow load. Requests refused only because the
// limit is lowered must be distinguishable from those that the full limit would refuse,
// because only the former are demand.
func (v *reader) loadFaults(r *Rule, l *limiter.Limit) {
	bad := func(text string) { v.bad("under_load", "%s", text) }
	switch {
	case l.Algorithm == limiter.Concurrency:
		bad("concurrency has no rate, so the number of requests a lowered limit refused is unknown; the shedder's max_in_flight bounds what is in flight; remove it")
	case l.MinInterval != 0:
		bad("what min_interval refuses cannot be told from what the lowered limit refuses; remove one of them")
	case l.CountDenied:
		bad("count_denied charges what only the lowered limit refuses, so it would still be refused under the full one; remove one of them")
	}
	if r.Descriptors != nil {
		bad("descriptors are counted for requests that another proxy forwards, to upstreams whose load this node does not know; remove it")
	}
	if l.Global != nil && l.Algorithm == limiter.TokenBucket {
		bad("with scope: global, regions count a token_bucket in windows that depend on the limit, so it must be the same everywhere; use sliding_window, or remove one of them")
	}
}
