// Package region models the fleet: its file, topology, drains, health of PoPs, and the
// choice of a PoP for a client. It stores nothing on disk and logs nothing.
package region

import (
	"maps"
	"math"
	"slices"
	"time"

	"github.com/weir-edge/weir/pkg/region/consul"
)

// PoPState is the state of one PoP as far as it is known.
type PoPState struct {
	// Healthy reports whether clients may be sent to it, with hysteresis.
	Healthy bool
	// Known reports whether the state of its nodes is known now. If not, the other fields
	// keep their last known values unless newer evidence contradicts them.
	Known          bool
	Nodes, Passing int
	Drained        *Drain // nil: not drained
	// Demand and Capacity are in requests per second, as the passing nodes measure them; a
	// Capacity of 0 is unknown.
	Demand, Capacity  float64
	CapacityEstimated bool        // Capacity is neither measured nor stated
	Stale             bool        // Demand and Capacity are too old to move clients by
	ProbeResult       ProbeResult // what this router's probes find
	Since             time.Time   // when Healthy last changed
}

// RegionState describes how current the knowledge of a region is.
type RegionState struct {
	Known bool      // the state of its nodes is known now
	Heard time.Time // when its Consul last answered; zero: never
	Via   string    // the region whose Consul reports on it while its own does not
	Err   error     // why its own Consul does not answer
	// Unsigned reports that its Consul holds a topology that none of FollowConfig.Verify's
	// keys has signed.
	Unsigned bool
	// Unreadable: its Consul answers, but its topology or drains cannot be read; the last ones stay.
	Unreadable bool
}

// View is the known state of the fleet at one moment. It never changes.
type View struct {
	Topology *Topology // nil until one has been read
	PoPs     map[string]PoPState
	Regions  map[string]RegionState
	At       time.Time
	Spill    *Spill // never nil
	SpillErr error  // why the router works alone, without agreeing with others on Spill
	Refused  int    // number of records of others that it has ignored
	chooser  *chooser
	portions map[string][]portion // of Spill, by the PoP that gives
	text     string               // of Topology, for the Follower
}

// NewView makes a view of a topology and the states of its PoPs. t and geo may be nil.
func NewView(t *Topology, pops map[string]PoPState, geo Locator) *View {
	v := &View{Topology: t, PoPs: pops, Spill: &Spill{}}
	if t != nil {
		v.chooser = newChooser(t, geo)
	}
	return v
}

// With returns v with other states of its PoPs.
func (v *View) With(pops map[string]PoPState) *View {
	next := *v
	next.PoPs = pops
	return &next
}

// Spilled returns v with what its router gives away next: spill is what it gave away
// before, now is the time of v's states, and ttl is how long clients keep an answer.
func (v *View) Spilled(spill *Spill, ttl time.Duration, now time.Time) *View {
	next := *v
	if v.chooser != nil {
		next.Spill = v.chooser.spill(spill, v.PoPs, ttl, now)
		next.portions = v.chooser.portions(next.Spill)
	}
	return &next
}

// Choose answers q. Without a topology the answer is empty. It does no I/O.
func (v *View) Choose(q Query) Answer {
	if v.chooser == nil {
		return Answer{}
	}
	a := v.chooser.choose(v.PoPs, v.portions, q)
	if q.Explain {
		a.Reason = append(append(v.stale(), v.restless()...), a.Reason...)
	}
	return a
}

// HasRegion reports whether the topology has a region.
func (v *View) HasRegion(name string) bool {
	return v.chooser != nil && slices.Contains(v.chooser.names, name)
}

const (
	// badLooks is how many consecutive looks must find too few passing nodes before a PoP
	// goes down. If none passes, it goes down immediately.
	badLooks = 2
	// healthEvery is the minimum time between two bad looks that count.
	healthEvery = time.Second
	// riseAfter is how long enough nodes must pass before a PoP recovers. From the third
	// fall within a minute of the last recovery, it doubles with each fall, up to
	// maxRise, so that a flapping PoP stays down.
	riseAfter = 5 * time.Second
	maxRise   = 40 * time.Second
	calm      = time.Minute
)

// health is the hysteresis of one PoP. The zero health has not been checked yet.
type health struct {
	up      bool
	since   time.Time // when up last changed
	bad     int       // consecutive looks with too few
	counted time.Time // the last one counted
	good    time.Time // while down: since when enough pass; zero if too few do
	falls   int       // falls soon after a recovery
	probed  bool      // probes decided last, contrary to what Consul reported before
}

// look is how many of a PoP's nodes pass at one moment.
type look struct {
	nodes, passing int
	enough         bool
}

// newLook judges by the share of nodes that must pass; at least one must.
func newLook(nodes, passing int, share float64) look {
	need := max(1, int(math.Ceil(min(share, 1)*float64(nodes))))
	return look{nodes, passing, passing >= need}
}

// next returns h after a look. It is pure.
func (h health) next(l look, now time.Time) health {
	if h.since.IsZero() {
		return health{up: l.enough, since: now}
	}
	switch {
	case h.up && l.enough:
		h.bad = 0
	case h.up:
		if h.bad == 0 || now.Sub(h.counted) >= healthEvery {
			h.bad, h.counted = h.bad+1, now
		}
		if l.passing > 0 && h.bad < badLooks {
			break
		}
		if now.Sub(h.since) >= calm {
			h.falls = 0
		}
		h = health{since: now, falls: h.falls + 1}
	case !l.enough:
		h.good = time.Time{}
	case h.good.IsZero():
		h.good = now
	case now.Sub(h.good) >= h.rise():
		h = health{up: true, since: now, falls: h.falls}
	}
	return h
}

// rise returns how long enough nodes must pass before h is up again.
func (h health) rise() time.Duration {
	return min(riseAfter<<min(max(h.falls-2, 0), 8), maxRise)
}

// fleetFacts is the input of one look at the whole fleet.
type fleetFacts struct {
	topology *Topology
	regions  map[string]regionFacts
	share    float64
	sights   map[string]probeHistory // by PoP
}

// states looks at every PoP of the topology, and returns their states and their new
// healths. It is pure.
func (f *fleetFacts) states(before map[string]health, now time.Time) (map[string]PoPState, map[string]health) {
	states, healths := map[string]PoPState{}, map[string]health{}
	if f.topology == nil {
		return states, healths
	}
	drains := drainsOf(deciding(f.regions, func(r regionFacts) bool { return r.drains != nil }))
	all := drainsOf(f.regions)
	for _, r := range f.topology.Regions {
		facts := f.regions[r.Name]
		nodes, known := facts.effective(now)
		for _, p := range r.PoPs {
			var passing []consul.Instance
			s, h := PoPState{Known: known, Drained: Oldest(p.Name, drains, Ended(p.Name, all)), ProbeResult: probeResultOf(p.Name, f.sights)}, before[p.Name]
			for _, n := range nodes {
				if n.PoP != p.Name {
					continue
				}
				s.Nodes++
				if n.Passing {
					s.Passing++
					passing = append(passing, n)
				}
			}
			s.SetLoad(passing, p.Capacity)
			s.Stale = !known && !facts.heard.IsZero() && now.Sub(facts.heard) > staleAfter
			// Until a region first reports or the PoP is probed, nothing counts as a look:
			// undoing a wrong one would take riseAfter.
			l, judged := newLook(s.Nodes, s.Passing, f.share), facts.reported()
			decided := false
			if !known {
				l, decided = s.ProbeResult.by(l)
				judged = decided || judged && !h.probed
			}
			if judged {
				h = h.next(l, now)
				h.probed = decided
			}
			if !h.since.IsZero() {
				healths[p.Name] = h
			}
			s.Healthy, s.Since = h.up, h.since
			states[p.Name] = s
		}
	}
	return states, healths
}

// deciding returns the regions whose topology and drains count: those that have reported
// and whose Consul answers now, or all if there is none. What an unreachable region last
// reported may have been withdrawn in the others.
func deciding(regions map[string]regionFacts, reported func(regionFacts) bool) map[string]regionFacts {
	answering := maps.Clone(regions)
	maps.DeleteFunc(answering, func(_ string, r regionFacts) bool { return !r.failing.IsZero() || !reported(r) })
	if len(answering) == 0 {
		return regions
	}
	return answering
}

func drainsOf(regions map[string]regionFacts) (all []Drains) {
	for _, r := range regions {
		if r.drains != nil {
			all = append(all, *r.drains)
		}
	}
	return all
}
