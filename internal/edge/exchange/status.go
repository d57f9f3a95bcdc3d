package exchange

import (
	"sync"
	"time"

	"github.com/weir-edge/weir/pkg/limiter"
	"github.com/weir-edge/weir/pkg/limiter/global"
	"github.com/weir-edge/weir/pkg/limiter/recent"
)

// usage is what was measured of one rule.
type usage struct {
	mu    sync.Mutex
	limit *limiter.Limit // the newest
	over  recent.Max
}

// measure records by how much all regions exceeded a limit, as far as this one knows. Tiers that
// share a counter do not measure each other. The part is locked.
func (p *part) measure(x *Exchange, l *limiter.Limit, key string, start int64) {
	if l.Shared || p.excused[key] > 0 {
		return
	}
	total := p.counts.Known(p.self, key, start).Count + p.counts.Others(key, start)
	found, ok := x.usages.Load(l.Rule)
	if !ok {
		found, _ = x.usages.LoadOrStore(l.Rule, &usage{})
	}
	u := found.(*usage)
	u.mu.Lock()
	defer u.mu.Unlock()
	u.limit = l
	u.over.See(global.Excess(l, total), x.config.Clock().Microseconds())
}

// Usage is what was measured of one rule.
type Usage struct {
	Rule string
	// Overshoot is the largest part by which all regions exceeded the limit of a key in a
	// window of the last 30 to 60 seconds, of the partitions that this node owns. Bound is by
	// how much they may, at ten times the limit and the present lag.
	Overshoot, Bound float64
}

// Usages returns the usage of each rule whose keys this node knows, in no order.
func (x *Exchange) Usages() (list []Usage) {
	regions, _, ok := x.position()
	if !ok {
		return nil
	}
	delay := x.Delay()
	x.usages.Range(func(rule, value any) bool {
		u := value.(*usage)
		u.mu.Lock()
		defer u.mu.Unlock()
		if x.config.Limit(rule.(string), "") == nil {
			x.usages.Delete(rule)
			return true
		}
		over := global.OvershootBounds(u.limit, len(regions), limiter.BoundDemand, delay+u.limit.LeaseTime()).Ratio(u.limit)
		list = append(list, Usage{rule.(string), u.over.Value(x.config.Clock().Microseconds()), over.Demand})
		return true
	})
	return list
}

// Lags returns the possible age of this node's knowledge of each other region, from the partitions
// that it owns. A region never heard from is as old as the partition.
func (x *Exchange) Lags() map[string]time.Duration {
	regions, self, ok := x.position()
	if !ok {
		return nil
	}
	lags := map[string]time.Duration{}
	now := x.config.Clock()
	for i := range x.parts {
		p := &x.parts[i]
		p.mu.Lock()
		for r := range regions {
			if r == self || p.counts == nil || p.regions != len(regions) || now-p.used > keepFor/10 {
				continue
			}
			lag, known := p.counts.Lag(r, now)
			if !known {
				lag = now - p.born
			}
			lags[regions[r]] = max(lags[regions[r]], lag)
		}
		p.mu.Unlock()
	}
	return lags
}

// Delay returns how soon this region learns of a request in another: the largest lag, a Period in
// which a node counts, and another until its region reports.
func (x *Exchange) Delay() time.Duration {
	most := time.Duration(0)
	for _, lag := range x.Lags() {
		most = max(most, lag)
	}
	return most + 2*global.Period
}

// Keys returns how many counters this node keeps, how many of them other regions must know, and
// how many of other regions' were refused.
func (x *Exchange) Keys() (kept, travel int, refused int64) {
	for i := range x.parts {
		p := &x.parts[i]
		p.mu.Lock()
		if p.counts != nil {
			k, t, r := p.counts.Keys()
			kept, travel, refused = kept+k, travel+t, refused+r
		}
		p.mu.Unlock()
	}
	return kept, travel, refused
}
