package router

import (
	"fmt"
	"log/slog"
	"maps"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/weir-edge/weir/pkg/region"
)

// stateLog logs each change in the state of the fleet.
type stateLog struct {
	log   *slog.Logger
	fleet []string               // the regions of the fleet file
	geo   bool                   // the router has a GeoIP database
	zone  atomic.Pointer[string] // being answered for, once known

	before   *region.View
	lastZone string // the different zone of a topology
	// giving are the PoPs that were up and gave clients away; away are those whose clients are
	// elsewhere because they were down or drained, and come back gradually.
	giving, away map[string]bool
}

func newStateLog(log *slog.Logger, fleet []string, geo bool) *stateLog {
	return &stateLog{log: log, fleet: fleet, geo: geo, before: region.NewView(nil, nil, nil), giving: map[string]bool{}, away: map[string]bool{}}
}

// changed compares a view with the previous one.
func (s *stateLog) changed(v *region.View) {
	for _, name := range slices.Sorted(maps.Keys(v.Regions)) {
		s.region(name, s.before.Regions[name], v.Regions[name], v.At)
	}
	switch text := errorText(v.SpillErr); {
	case text == errorText(s.before.SpillErr):
	case text != "":
		s.log.Warn("works alone: which clients go elsewhere may differ from other routers", "error", text)
	default:
		s.log.Info("agrees with other routers again on which clients go elsewhere")
	}
	if v.Topology != nil {
		if v.Topology != s.before.Topology {
			s.topology(v.Topology)
		}
		for _, r := range v.Topology.Regions {
			for _, p := range r.PoPs {
				before, known := s.before.PoPs[p.Name]
				s.pop(r.Name, p.Name, before, v.PoPs[p.Name], known, v.Regions[r.Name])
				s.gives(r.Name, p.Name, v)
			}
		}
		if z := s.zone.Load(); z != nil && v.Topology.Zone != *z && v.Topology.Zone != s.lastZone {
			s.lastZone = v.Topology.Zone
			s.log.Warn("the topology names a different zone from the one being answered for; restart to answer for it, or pass --zone", "zone", *z, "topology_zone", v.Topology.Zone)
		}
	}
	s.before = v
}

func (s *stateLog) topology(t *region.Topology) {
	pops := 0
	for _, r := range t.Regions {
		pops += len(r.PoPs)
		if !slices.Contains(s.fleet, r.Name) {
			s.log.Warn("the topology has a region that is not in the fleet file, so the state of its PoPs is unknown; add it to the fleet file", "region", r.Name)
		}
	}
	if why := t.CannotSteer(s.geo); why != "" {
		s.log.Error("clients are not steered", "why", why)
	}
	s.log.Info("topology", "zone", t.Zone, "regions", len(t.Regions), "pops", pops)
}

func (s *stateLog) region(name string, before, now region.RegionState, at time.Time) {
	switch text := errorText(now.Err); {
	case now.Known && !before.Known:
		s.log.Info("region is known", "region", name, "via", now.Via)
	case !now.Known && before.Known:
		s.log.Warn("region is unknown; its PoPs keep their last state unless their edges refuse", "region", name, "silent_for", at.Sub(now.Heard).Round(time.Second).String(), "error", text)
	case now.Via != before.Via && now.Via != "":
		s.log.Warn("region is known through another", "region", name, "via", now.Via, "error", text)
	case text != "" && errorText(before.Err) == "":
		s.log.Warn("region has a fault", "region", name, "error", text)
	case text == "" && errorText(before.Err) != "":
		s.log.Info("region no longer has a fault", "region", name)
	}
}

func (s *stateLog) pop(in, name string, before, now region.PoPState, known bool, of region.RegionState) {
	at := []any{"region", in, "pop", name}
	switch {
	case now.Since.IsZero():
		// It has not reported yet.
	case !now.Healthy && (before.Healthy || before.Since.IsZero()):
		s.log.Warn("pop is down", append(at, "why", downBecause(now, of))...)
	case now.Healthy && !before.Healthy:
		s.log.Info("pop is up", append(at, "why", fmt.Sprintf("%d of %d edges pass", now.Passing, now.Nodes))...)
	}
	switch {
	case now.Drained != nil && (before.Drained == nil || !now.Drained.Equal(*before.Drained)):
		s.log.Warn("pop is drained", append(at, "who", now.Drained.Who, "why", now.Drained.Why, "since", now.Drained.Since.UTC().Format("2006-01-02 15:04:05Z"))...)
	case now.Drained == nil && before.Drained != nil && known:
		s.log.Info("pop is no longer drained", at...)
	}
}

// servedAgain is the part of its capacity up to which a PoP gets its own clients back. One that
// begins to give clients away has more of them.
const servedAgain = 0.9

// gives logs when a PoP that is up begins or stops giving clients away. The lines about
// down and drained PoPs, and that they are up again, imply where their clients go.
func (s *stateLog) gives(in, name string, v *region.View) {
	at := []any{"region", in, "pop", name}
	now, gift := v.PoPs[name], v.Spill.Gifts[name]
	switch {
	case !serves(now):
		s.away[name] = true
	case !gift.Gives(), now.Capacity > 0 && gift.Own > now.Capacity:
		delete(s.away, name)
	}
	if !s.giving[name] && gift.Gives() && gift.Own < servedAgain*now.Capacity {
		s.away[name] = true // and were before this router started
	}
	gave, gives := s.giving[name], serves(now) && gift.Gives() && !s.away[name]
	s.giving[name] = gives
	switch {
	case gives && !gave && now.Capacity > 0:
		s.log.Warn("pop cannot serve all of its clients; some go to others", append(at, "demand", math.Round(now.Demand), "capacity", math.Round(now.Capacity))...)
	case gives && !gave:
		s.log.Warn("pop has not published its load; some clients go to others until it does", at...)
	case gave && !gives && serves(now):
		s.log.Info("pop serves all of its clients again", at...)
	}
}

// serves reports whether a PoP serves its own clients.
func serves(p region.PoPState) bool { return p.Healthy && p.Drained == nil }

// downBecause returns why a PoP counts as down.
func downBecause(s region.PoPState, of region.RegionState) string {
	switch {
	case !s.Known && s.ProbeResult == region.Lost:
		return "neither a Consul reports on it nor does it answer probes, and most other PoPs do"
	case s.Nodes == 0:
		return "no edge is registered"
	case !s.Known && of.Err != nil:
		return fmt.Sprintf("%d of %d edges answer, and the region's Consul does not: %v", s.Passing, s.Nodes, of.Err)
	case of.Via != "":
		return fmt.Sprintf("%d of %d edges pass, according to %s", s.Passing, s.Nodes, of.Via)
	}
	return fmt.Sprintf("%d of %d edges pass", s.Passing, s.Nodes)
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
