package load

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/weir-edge/weir/pkg/region/consul"
	"github.com/weir-edge/weir/pkg/shedder"
)

// registered is the load in the node's registration.
type registered struct {
	load *consul.Load // nil if the shedder is off
	at   time.Time
}

// leastAfter is the least time between turning the shedder on or off and a registration.
const leastAfter = 10 * time.Second

// Registered keeps the load that a node registers.
type Registered struct {
	shedding *Shedding
	latest   atomic.Pointer[registered]
}

// NewRegistered returns one that registers nothing yet.
func NewRegistered(s *Shedding) *Registered { return &Registered{shedding: s} }

// Run keeps the load up to date until ctx ends, and calls changed for each that is worth a
// registration.
func (r *Registered) Run(ctx context.Context, changed func()) {
	for consul.Pause(ctx, time.Second) == nil {
		now := registered{at: time.Now()}
		if r.shedding.active.Load().Document.Enabled {
			all := make([]shedder.Status, len(r.shedding.shedders))
			for i, s := range r.shedding.shedders {
				all[i] = s.Status()
			}
			now.load = loadOf(all)
		}
		if before := r.latest.Load(); before == nil || now.worthTelling(before) {
			r.latest.Store(&now)
			changed()
		}
	}
}

// Meta adds the load to the node's registration.
func (r *Registered) Meta(meta map[string]string) {
	if now := r.latest.Load(); now != nil && now.load != nil {
		now.load.Put(meta)
	}
}

// worthTelling reports whether t is worth a registration after before.
func (t *registered) worthTelling(before *registered) bool {
	after := t.at.Sub(before.at)
	if t.load != nil && before.load != nil && t.load.Due(*before.load, after) {
		return true
	}
	return after >= leastAfter && (t.load == nil) != (before.load == nil)
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
