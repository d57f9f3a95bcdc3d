package edge

import (
	"context"
	"math"
	"strconv"
	"time"

	"github.com/weir-edge/weir/pkg/region/consul"
	"github.com/weir-edge/weir/pkg/shedder"
)

// toldLoad is the load in the node's registration.
type toldLoad struct {
	load   *consul.Load // nil if the shedder is off
	tenths int64        // the shed level, which routers of the previous release read
	at     time.Time
}

// leastAfter is the least time between two registrations of a changed shed level.
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
		if e.keeper.active.Load().Document.Enabled {
			all := make([]shedder.Status, len(e.groups))
			for i, g := range e.groups {
				all[i] = g.shedder.Status()
			}
			now.load, now.tenths = loadOf(all), tenthsOf(all)
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
	return after >= leastAfter && (t.tenths != before.tenths || (t.load == nil) != (before.load == nil))
}

// put adds t to the registration's meta.
func (t *toldLoad) put(meta map[string]string) {
	if t == nil {
		return
	}
	if t.load != nil {
		t.load.Put(meta)
	}
	if t.tenths > 0 {
		meta[consul.MetaShedLevel] = strconv.FormatFloat(float64(t.tenths)/10, 'f', 1, 64)
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

// tenthsOf returns the highest level of all groups, in tenths of everything that a group can
// shed. A single class is never shed by level.
func tenthsOf(groups []shedder.Status) (tenths int64) {
	for _, s := range groups {
		if steps := len(s.Classes) - 1; steps > 0 && s.Level > 0 {
			tenths = max(tenths, int64(math.Round(10*min(s.Level/float64(steps), 1))))
		}
	}
	return tenths
}
