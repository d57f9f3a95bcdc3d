package behavior

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// A client may be spread over the nodes of a region. Each node tells the others what it
// counted of the subjects that could matter: once a second Divide, AppendAccounts and Merge.

const (
	// maxListed bounds the subjects of a shard of which a node may tell others.
	maxListed = 64
	// toldTicks is for how long after its last request others hear of a subject: several
	// exchanges, should one fail.
	toldTicks = 3 * ticksPerSecond
)

// shared says what there is to tell of a subject.
type shared uint8

const (
	listed shared = 1 << iota // other nodes are to hear of it
	unsaid                    // Merge moved it to a severer tier, and nobody was told
)

func (s shared) has(bit shared) bool { return s&bit != 0 }

// near is from which counts on a node tells others of a subject. If a subject is spread over
// all nodes, at least one of them counts as much once the region's count is half of what
// raises the signal.
type near struct {
	requests                                     uint32
	prints, lacks, failures, early, routes, gone uint16
}

// nearOf returns what is near for a policy on one of several nodes.
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

// reached reports whether others are to hear of a subject.
func (n *near) reached(s *subject) bool {
	return s.requests >= n.requests || s.lacks >= n.lacks || max(s.auth, s.gone, s.broken) >= n.failures || s.early >= n.early ||
		n.walks(&s.minuteWalk) || n.walks(&s.longWalk) || max(slices.Max(s.printCounts[:]), slices.Max(s.routeCounts[:])/2) >= n.prints
}

func (n *near) walks(w *walk) bool { return w.gone >= n.gone && distinctOf[w.seen] >= n.routes }

// closeness returns how much of a threshold a subject has reached: the largest part of all.
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

// Divide says how many nodes of a region judge the same subjects. With one there is nobody to
// tell.
func (t *Table) Divide(nodes int) {
	if nodes < 2 {
		t.near.Store(nil)
	} else {
		t.near.Store(nearOf(t.policy.Load(), nodes))
	}
}

// list notes a subject of which others are to hear. When there are too many, one that was
// noted earlier gives way, and is noted again at its next request.
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

// unlist forgets a subject that was noted.
func (s *shard) unlist(found *subject) {
	if found.shared.has(listed) {
		found.shared &^= listed
		s.listed = slices.DeleteFunc(s.listed, func(o *subject) bool { return o == found })
		s.turn = 0
	}
}

// AppendAccounts writes what was counted here of the subjects that may be near a threshold in
// the region and have just been seen, at most so many: those that are nearest. Call it from one
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

// Region adds up what other nodes counted. It is for one goroutine, and is empty to begin with.
type Region struct{ others map[uint64]*subject }

// Add adds the accounts of one node, as AppendAccounts wrote them. It reports whether they are
// well formed; if not, it adds nothing.
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

// Len returns how many subjects others told of.
func (r *Region) Len() int { return len(r.others) }

// Risen is a subject that Merge moved to a severer tier.
type Risen struct {
	Standing
	Reasons []Reason
}

// Merge judges the subjects of which other nodes told by what all nodes counted. It returns
// those that this moved to a severer tier, each as it stands then. Points are worth what the
// counts are, as for a request here, and what other nodes concluded is in none of them.
func (t *Table) Merge(now time.Time, r *Region) (rose []Risen) {
	p, at := t.policy.Load(), t.tick(now)
	for key, whole := range r.others {
		if st := t.merge(p, at, key, whole); st.Rose {
			rose = append(rose, Risen{st, t.Reasons(key, now, nil)})
		}
	}
	return rose
}

func (t *Table) merge(p *Policy, at tick, key uint64, whole *subject) Standing {
	s := t.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	found := s.find(key)
	if found != nil {
		if found.settle(p, at); found.refuses {
			return Standing{} // nothing is conduct while it is refused
		}
		own := found.current(at)
		whole.add(&own)
		whole.points, whole.values = found.points, found.values
	}
	before := whole.points
	if p.weigh(whole); whole.points == before {
		return Standing{}
	}
	if found == nil {
		if found = s.add(p, key, at); found == nil {
			return Standing{}
		}
	}
	tier := found.tier
	found.points, found.values = whole.points, whole.values
	found.settle(p, at)
	st := found.standing(at)
	st.Rose = found.tier > tier
	if st.Rose {
		found.shared |= unsaid
	}
	return st
}

// weigh raises the signals that the counts of all windows bring to their thresholds.
func (p *Policy) weigh(s *subject) {
	p.burst(s)
	p.presence(s)
	p.repetition(s, slices.Max(s.printCounts[:]), slices.Max(s.routeCounts[:]))
	p.scan(s, &s.minuteWalk)
	p.scan(s, &s.longWalk)
	p.failed(s, max(s.auth, s.gone, s.broken))
	p.denied(s)
}
