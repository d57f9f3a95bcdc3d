package exchange

import (
	"context"
	"time"

	"github.com/weir-edge/weir/pkg/limiter"
	"github.com/weir-edge/weir/pkg/limiter/global"
)

// maxCharges bounds the counts charged per call.
const maxCharges = 4096

// signal wakes charge.
func (x *Exchange) signal() {
	select {
	case x.wake <- struct{}{}:
	default:
	}
}

// charge charges what other regions admitted to this region's store until ctx ends. It retries
// later if the store is unreachable or the window has not begun here.
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
			if again { // new counts do not hasten a retry
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

// chargeSome charges pending counts. It reports whether more are pending, and whether any must
// be retried.
func (x *Exchange) chargeSome(ctx context.Context) (more, again bool) {
	regions, _, ok := x.position()
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
				continue // the next count after the rule becomes active includes this one
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
