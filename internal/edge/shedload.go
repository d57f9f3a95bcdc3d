package edge

import (
	"context"
	"time"

	"github.com/weir-edge/weir/pkg/region/consul"
	"github.com/weir-edge/weir/pkg/shedder"
)

// toldLoad is the load in the node's registration.
type toldLoad struct {
	load *consul.Load // nil if the shedder is off
	at   time.Time
}

// leastAfter is the least time between turning the shedder on or off and a registration.
const leastAfter = 10 * time.Second

// followLoad keeps the registered load up to date until ctx ends.
func (e *Edge) followLoad(ctx context.Context) {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		now := toldLoad{at: time.Now()}
		if e.shedding.active.Load().Document.Enabled {
			all := make([]shedder.Status, len(e.groups))
			for i, g := range e.groups {
				all[i] = g.shedder.Status()
			}
			now.load = loadOf(all)
		}
		if before := e.told.Load(); before == nil || now.worthTelling(before) {
			e.told.Store(&now)
			e.changed()
		}
	}
}

// worthTelling reports whether t is worth a registration after before.
func (t *toldLoad) worthTelling(before *toldLoad) bool {
	after := t.at.Sub(before.at)
	if t.load != nil && before.load != nil && t.load.Due(*before.load, after) {
		return true
	}
	return after >= leastAfter && (t.load == nil) != (before.load == nil)
}

// put adds t to the registration's meta.
func (t *toldLoad) put(meta map[string]string) {
	if t != nil && t.load != nil {
		t.load.Put(meta)
	}
}

// loadOf combines the load of all groups. Sending a client elsewhere relieves every group,
// so the node's fullness is the mean over its groups, weighted by demand: a group with
// little demand moves few clients. What rules refuse is not demand.
func loadOf(groups []shedder.Status) *consul.Load {
	var demand, full, measured, capacity float64
	for _, s := range groups {
		demand += s.Demand
		capacity += s.Capacity
		if s.Demand <= 0 || s.Capacity <= 0 {
			continue
		}
		part := s.Demand * s.Demand / s.Capacity
		full += part
		if s.Measured {
			measured += part
		}
	}
	l := consul.Load{Demand: demand}
	if full > 0 {
		capacity = demand * demand / full
	}
	// The groups that fill the node most determine whether its capacity counts as measured.
	if measured > full/2 {
		l.Capacity = capacity
	} else {
		l.CapacityAtLeast = capacity
	}
	return &l
}
