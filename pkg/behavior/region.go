package behavior

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// A client may be spread over the nodes of a region. Once per second, each node tells the
// others what it counted of the subjects that could matter: Divide, AppendAccounts and
// Merge.

const (
	// maxListed bounds the subjects per shard that a node reports to others.
	maxListed = 64
	// toldTicks is how long after its last request a subject is reported: several
	// exchanges, in case one fails.
	toldTicks = 3 * ticksPerSecond
)

// shared describes what to report about a subject.
type shared uint8

const (
	listed shared = 1 << iota // to be reported to other nodes
	unsaid                    // Merge moved it to a severer tier, not yet announced
)

func (s shared) has(bit shared) bool { return s&bit != 0 }

// near holds the counts from which a node reports a subject. If a subject is spread over
// all nodes, at least one of them reaches such a count by the time the region's count is
// half of what raises the signal.
type near struct {
	requests                                     uint32
	prints, lacks, failures, early, routes, gone uint16
}

// nearOf returns near for a policy on one of several nodes.
func nearOf(p *Policy, nodes int) *near {
	part := func(s Signal, of float64) uint16 {
		if p.Signals[s].Weight == 0 {
			return math.MaxUint16
		}
		return uint16(max(1, min(math.Ceil(of/float64(2*nodes)), math.MaxUint16)))
	}
	at := func(s Signal) float64 { return float64(p.Signals[s].AtLeast) }
	return &near{
		requests: uint32(part(Burst, at(Burst))), prints: part(Repetition, at(Repetition)), lacks: part(Presence, at(Presence)),
		failures: part(Failures, at(Failures)), early: part(Denials, at(Denials)),
		routes: part(Scan, at(Scan)), gone: part(Scan, at(Scan)*p.Signals[Scan].Share),
	}
}

// reached reports whether others must hear of a subject.
func (n *near) reached(s *subject) bool {
	return s.requests >= n.requests || s.lacks >= n.lacks || max(s.auth, s.gone, s.broken) >= n.failures || s.early >= n.early ||
		n.walks(&s.minuteWalk) || n.walks(&s.longWalk) || max(slices.Max(s.printCounts[:]), slices.Max(s.routeCounts[:])/2) >= n.prints
}

func (n *near) walks(w *walk) bool { return w.gone >= n.gone && distinctOf[w.seen] >= n.routes }

// closeness returns how close a subject is to a threshold: the largest fraction reached of
// any.
func (p *Policy) closeness(s *subject) (most float64) {
	for signal, value := range [...]float64{
		Burst: float64(s.requests), Repetition: float64(max(slices.Max(s.printCounts[:]), slices.Max(s.routeCounts[:])/2)),
		Scan: float64(distinctOf[max(s.minuteWalk.seen, s.longWalk.seen)]), Denials: float64(s.early),
		Failures: float64(max(s.auth, s.gone, s.broken)), Presence: float64(s.lacks),
	} {
		if t := &p.Signals[signal]; t.Weight > 0 {
			most = max(most, value/float64(t.AtLeast))
		}
	}
	return most
}

// Divide sets how many nodes of a region judge the same subjects. A single node has no one
// to report to.
func (t *Table) Divide(nodes int) {
	t.nodes.Store(int32(nodes))
	if nodes < 2 {
		t.near.Store(nil)
	} else {
		t.near.Store(nearOf(t.policy.Load(), nodes))
	}
}

// list marks a subject to be reported. When there are too many, one marked earlier gives
// way, and is marked again at its next request.
func (s *shard) list(found *subject) {
	found.shared |= listed
	if len(s.listed) < maxListed {
		s.listed = append(s.listed, found)
		return
	}
	s.listed[s.turn].shared &^= listed
	s.listed[s.turn] = found
	s.turn = (s.turn + 1) % maxListed
}

// unlist removes a subject's mark.
func (s *shard) unlist(found *subject) {
	if found.shared.has(listed) {
		found.shared &^= listed
		s.listed = slices.DeleteFunc(s.listed, func(o *subject) bool { return o == found })
		s.turn = 0
	}
}

// AppendAccounts appends what was counted here of recently seen subjects that may be near a
// threshold in the region, at most the given number: the nearest ones. Call it from one
// goroutine.
func (t *Table) AppendAccounts(dst []byte, now time.Time, most int) []byte {
	n := t.near.Load()
	if n == nil {
		return dst
	}
	p, at := t.policy.Load(), t.tick(now)
	type candidate struct {
		closeness float64
		subject
	}
	var list []candidate
	for i := range t.shards {
		s := &t.shards[i]
		s.mu.Lock()
		kept := s.listed[:0]
		for _, found := range s.listed {
			c := found.current(at)
			if at.since(c.seen) > toldTicks || !n.reached(&c) {
				found.shared &^= listed
				continue
			}
			kept = append(kept, found)
			list = append(list, candidate{p.closeness(&c), c})
		}
		clear(s.listed[len(kept):])
		s.listed, s.turn = kept, 0
		s.mu.Unlock()
	}
	slices.SortFunc(list, func(a, b candidate) int { return cmp.Compare(b.closeness, a.closeness) })
	for i := range min(most, len(list)) {
		dst = list[i].appendAccount(dst)
	}
	return dst
}

// Region adds up what other nodes counted. The zero value is empty; only one goroutine may
// use it.
type Region struct{ others map[uint64]*subject }

// Add adds the accounts of one node, as written by AppendAccounts. It reports whether they
// are well formed; if not, it adds nothing.
func (r *Region) Add(accounts []byte) bool {
	if len(accounts)%AccountSize != 0 {
		return false
	}
	list := make([]subject, len(accounts)/AccountSize)
	for i := range list {
		if !list[i].readAccount(accounts[i*AccountSize:]) {
			return false
		}
	}
	if r.others == nil {
		r.others = make(map[uint64]*subject, len(list))
	}
	for i := range list {
		if sum := r.others[list[i].key]; sum != nil {
			sum.add(&list[i])
		} else {
			r.others[list[i].key] = &list[i]
		}
	}
	return true
}

// Len returns how many subjects other nodes reported.
func (r *Region) Len() int { return len(r.others) }

// Risen is a subject that Merge moved to a severer tier.
type Risen struct {
	Status
	Reasons []Reason
}

// Merge judges the subjects that other nodes reported by what all nodes counted. It returns
// those that this moved to a severer tier, with their new standing. The counts earn the
// same points as local requests would; other nodes' conclusions are not included.
func (t *Table) Merge(now time.Time, r *Region) (rose []Risen) {
	p, at := t.policy.Load(), t.tick(now)
	for key, whole := range r.others {
		if st := t.merge(p, at, key, whole); st.Rose {
			rose = append(rose, Risen{st, t.Reasons(key, now, nil)})
		}
	}
	return rose
}

func (t *Table) merge(p *Policy, at tick, key uint64, whole *subject) Status {
	s := t.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	found := s.find(key)
	if found != nil {
		if found.settle(p, at); found.refuses {
			return Status{} // requests during a refusal are not judged
		}
		own := found.current(at)
		whole.add(&own)
		whole.points, whole.values = found.points, found.values
	}
	before := whole.points
	if p.weigh(whole); whole.points == before {
		return Status{}
	}
	if found == nil {
		if found = s.add(p, key, at); found == nil {
			return Status{}
		}
	}
	tier := found.tier
	found.points, found.values = whole.points, whole.values
	found.settle(p, at)
	st := found.status(at)
	st.Rose = found.tier > tier
	if st.Rose {
		found.shared |= unsaid
	}
	return st
}

// weigh raises the signals whose thresholds the counts of all windows reach.
func (p *Policy) weigh(s *subject) {
	p.burst(s)
	p.presence(s)
	p.repetition(s, slices.Max(s.printCounts[:]), slices.Max(s.routeCounts[:]))
	p.scan(s, &s.minuteWalk)
	p.scan(s, &s.longWalk)
	p.failed(s, max(s.auth, s.gone, s.broken))
	p.denied(s)
}
