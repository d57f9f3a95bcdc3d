package across

import (
	"context"
	"time"

	"github.com/weir-edge/weir/pkg/limiter"
	"github.com/weir-edge/weir/pkg/limiter/global"
)

// maxCharges bounds what is charged at once.
const maxCharges = 4096

// signal wakes charge.
func (x *Exchange) signal() {
	select {
	case x.wake <- struct{}{}:
	default:
	}
}

// charge charges what other regions have let pass to this region's store, until ctx ends.
// What could not be charged is tried again after a while: the store is unreachable, or the
// window has not begun here.
func (x *Exchange) charge(ctx context.Context) {
	for {
		again := false
		for more := true; more && ctx.Err() == nil; {
			more, again = x.chargeSome(ctx)
			more = more && !again
		}
		var retry <-chan time.Time
		if again {
			retry = time.After(global.Period)
		}
		select {
		case <-ctx.Done():
			return
		case <-x.wake:
			if again { // not sooner, whatever arrives
				select {
				case <-ctx.Done():
					return
				case <-retry:
				}
			}
		case <-retry:
		}
	}
}

// chargeSome charges what is pending. It reports whether there was more than it takes at
// once, and whether something has to be tried again.
func (x *Exchange) chargeSome(ctx context.Context) (more, again bool) {
	regions, _, ok := x.place()
	if !ok {
		return false, false
	}
	var merges []limiter.Merge
	var from []charge
	for i := range x.parts {
		p := &x.parts[i]
		p.mu.Lock()
		for c := range p.pending {
			if len(merges) >= maxCharges {
				more = true
				break
			}
			delete(p.pending, c)
			if p.counts == nil || c.region >= len(regions) {
				continue
			}
			h, known := p.counts.HeardOf(c.region, c.key, c.start)
			l := x.limit(h.Key, h.Tier, h.Width)
			if !known || l == nil {
				continue // when the rule is active here, the next count brings all
			}
			merges = append(merges, limiter.Merge{Limit: l, Key: []byte(c.key), Region: regions[c.region], Start: c.start, Width: h.Width, Count: h.Count})
			from = append(from, c)
		}
		p.mu.Unlock()
	}
	if len(merges) == 0 {
		return false, false
	}
	bounded, cancel := context.WithTimeout(ctx, time.Second)
	x.config.Store.Merge(bounded, merges)
	cancel()
	for i := range merges {
		if merges[i].Err == nil && !merges[i].Early {
			continue
		}
		again = true
		p := &x.parts[partitionOf(from[i].key)]
		p.mu.Lock()
		if p.counts != nil {
			p.pending[from[i]] = true
		}
		p.mu.Unlock()
	}
	return more, again
}
