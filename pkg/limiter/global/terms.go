package global

import "time"

// Term is how long a region may spend its rights after it sent the message that was last
// answered, by its own monotonic clock.
const Term = 60 * time.Second

// Epoch is the shortest time for which rights live.
const Epoch = 5 * time.Minute

// terms say whether a region may spend at all, and whose rights it has inherited. A region
// that is dead and one that is cut off look alike, so no region acts on what it sees alone:
//
//   - A region spends while a majority, itself included, has answered what it sent in the
//     last Term. Of an even number, the half with the first region is a majority.
//   - A region that has heard nothing new of another for a Term and a tenth more fences it:
//     it answers that incarnation no more.
//   - The heir of a region takes its part over, in epochs that begin later, when a majority
//     has fenced the same incarnation.
//
// Two majorities share a region. What that one answered last was sent a Term and a tenth
// before it fenced, so the other has stopped when the heir begins.
//
// What was fenced and inherited must survive a restart; it changes rarely and is small.
type terms struct {
	term   time.Duration
	fence  time.Duration // after how long without a word of a region
	skew   time.Duration
	self   int
	heirs  []int // of each region; -1: nobody takes over
	peers  []standing
	goodTo int64 // the wall clock when this region last could spend
	fenced int64 // the latest incarnation of this region that others have fenced
	// Before that it had its own part in epochs that began in [since, lapsed].
	since, lapsed int64
	free          int64 // from when the heir holds nothing of this region's; 0: it has not said
	claimed       int64 // how many parts were taken over, for operators
	enough        func(n, of int, withFirst bool) bool
}

// standing is what a region knows and says of another's right to spend.
type standing struct {
	latest  int64         // the latest incarnation heard of; 0: none
	heardAt time.Duration // when something new of it last arrived
	// answered is the latest time of the own clock at which a message left that it has
	// answered in this incarnation of both.
	answered time.Duration
	valid    bool
	fenced   int64   // the latest of its incarnations that this region has fenced
	votes    []int64 // which incarnations of others it has fenced
	claim    claim
}

// claim is another region's part, held in epochs that begin in [from, until).
type claim struct {
	incarnation int64
	from, until int64
}

const never = int64(1) << 62

func newTerms(c *RightsConfig) terms {
	t := terms{term: c.Term, fence: c.Term + c.Term/10, skew: c.Skew, self: c.Self, heirs: c.Heirs, peers: make([]standing, c.Regions), enough: majority}
	for i := range t.peers {
		t.peers[i].votes = make([]int64, c.Regions)
	}
	return t
}

// majority reports whether n regions are one.
func majority(n, of int, withFirst bool) bool { return 2*n > of || 2*n == of && withFirst }

// agree reports whether the regions of which that is true are a majority.
func (t *terms) agree(in func(region int) bool) bool {
	n := 0
	for i := range t.peers {
		if in(i) {
			n++
		}
	}
	return t.enough(n, len(t.peers), in(0))
}

// good reports whether this region may spend.
func (t *terms) good(now time.Duration, wall int64) bool {
	ok := t.agree(func(i int) bool {
		return i == t.self || t.peers[i].valid && now-t.peers[i].answered < t.term
	})
	if ok {
		t.goodTo = max(t.goodTo, wall)
	}
	return ok
}

// watch fences regions of which nothing was heard for too long, and takes over what falls
// to this one.
func (t *terms) watch(now time.Duration, wall int64) {
	for i := range t.peers {
		p := &t.peers[i]
		if i == t.self || p.latest == 0 {
			continue
		}
		gone := p.latest
		if now-p.heardAt >= t.fence {
			p.fenced = max(p.fenced, gone)
		}
		if t.heirs[i] != t.self || p.claim.until == never || p.fenced < gone {
			continue
		}
		if t.agree(func(j int) bool {
			return j == t.self || j != i && t.peers[j].votes[i] >= gone
		}) {
			p.claim = claim{incarnation: gone, from: max(wall+t.skew.Microseconds()+1, p.claim.until), until: never}
			t.claimed++
		}
	}
}

// hear takes in what a peer's message says of standings.
func (t *terms) hear(m *RightsMessage, fresh bool, self int64, now time.Duration, wall int64) {
	p := &t.peers[m.From]
	if fresh {
		p.latest, p.heardAt = m.Incarnation, now
	}
	if p.claim.until == never && m.Incarnation > p.claim.incarnation {
		p.claim.until = max(wall+t.skew.Microseconds()+1, p.claim.from) // it is back
	}
	for i, v := range m.Fenced {
		if i < len(p.votes) {
			p.votes[i] = max(p.votes[i], v)
		}
	}
	if v := p.votes[t.self]; v > t.fenced {
		// The heir may hold this region's part from some epoch on: it must say so.
		if t.fenced == 0 || t.free > 0 && t.free <= t.goodTo {
			t.since, t.lapsed = t.free, t.goodTo
		}
		t.fenced, t.free = v, 0
	}
	if m.Heard != self {
		return
	}
	if m.Echo > 0 && (!p.valid || m.Echo > p.answered) {
		p.answered, p.valid = m.Echo, true
	}
	if t.heirs[t.self] == m.From && m.Free < never {
		t.free = max(t.free, m.Free)
	}
}

// owns reports whether this region's own part is its own in an epoch.
func (t *terms) owns(epoch int64) bool {
	return t.fenced == 0 || epoch >= t.since && epoch <= t.lapsed || t.free > 0 && epoch >= t.free
}

// inherits reports whether another's part is this region's in an epoch.
func (t *terms) inherits(region int, epoch int64) bool {
	c := &t.peers[region].claim
	return c.until > 0 && epoch >= c.from && epoch < c.until
}
