package global

import (
	"slices"
	"time"

	"github.com/weir-edge/weir/pkg/limiter"
)

const (
	halfSecond = 500 * time.Millisecond
	// How long what a region has said of its demand counts.
	demandFor = 2 * time.Second
	// After how long without a request a region gives back what it got.
	idleAfter = 2 * time.Second
)

// Ask is what a region would like to have of a key: units for this window, and of the
// limit; and what it is asked for itself, in units a window.
type Ask struct {
	Key                string
	Now, Share, Demand int64
}

// RightsMessage is what one region tells another of the rights between them.
type RightsMessage struct {
	Header
	// Fenced says of each region which of its incarnations the sender has fenced.
	Fenced []int64
	// Free is the time from when on the sender holds nothing of the receiver's part.
	Free int64
	// Lost is when the sender's store last lost what it knew, by its clock.
	Lost   int64
	Grants []Transfer
	Asks   []Ask
}

// Transfer is the state between two regions of one key in one epoch: what the sender gave
// to the receiver, and what it knows to have got.
type Transfer struct {
	Key       string
	Epoch     int64
	Gave, Got Grant
}

// Plan prepares what all messages of a period say. It also fences regions that are silent,
// and takes over what falls to this one.
func (r *Rights) Plan(wall int64, now time.Duration) {
	r.wall = max(r.wall, wall)
	if r.terms.fenced >= r.config.Incarnation { // nobody answers this one any more
		r.config.Incarnation = r.terms.fenced + 1
		r.terms.free = 0
		for i := range r.links {
			r.terms.peers[i].valid = false
			r.links[i].sent, r.links[i].acked = 0, 0
		}
	}
	r.terms.good(now, r.wall)
	r.terms.watch(now, r.wall)
	r.asks = r.asks[:0]
	for e := range r.short {
		if e.epoch != r.epochOf(e.limit, r.wall) {
			delete(r.short, e)
			continue
		}
		if ask, want := r.want(e, now); !want {
			delete(r.short, e)
		} else if now-e.asked >= halfSecond && len(r.asks) < MaxBatch {
			e.asked = now
			r.asks = append(r.asks, ask)
		}
	}
	slices.SortFunc(r.asks, func(a, b Ask) int {
		if a.Key < b.Key {
			return -1
		}
		return 1
	})
}

// want returns what a region lacks for the demand that it sees.
func (r *Rights) want(e *right, now time.Duration) (Ask, bool) {
	r.roll(e)
	perWindow, rest := r.demand(e, now)
	l := e.limit
	a := Ask{Key: e.key, Demand: perWindow}
	a.Now = min(l.Limit, rest) - e.avail/scale(l)
	a.Share = min(l.Limit, perWindow) - e.share
	a.Now, a.Share = max(0, a.Now), max(0, a.Share)
	return a, perWindow > 0 && (a.Now > 0 || a.Share > 0)
}

// demand returns what a region is asked for in a window, and in the rest of this one: for a
// bucket, in the next two seconds.
func (r *Rights) demand(e *right, now time.Duration) (perWindow, rest int64) {
	e.pace.every = halfSecond
	n := e.pace.expected(now) // in half a second
	window := e.limit.Window.Microseconds()
	half := halfSecond.Microseconds()
	left := e.window + window - r.wall
	if isBucket(e.limit) {
		left = 4 * half
	}
	ceil := func(d int64) int64 {
		return min(limiter.MaxCount, int64(float64(n)*float64(d)/float64(half))+min(n, 1))
	}
	return max(n, ceil(window)), max(n, ceil(left))
}

// Send returns the message to a region.
func (r *Rights) Send(to int, now time.Duration) *RightsMessage {
	l := &r.links[to]
	m := &RightsMessage{Header: Header{From: r.config.Self, Incarnation: r.config.Incarnation}, Asks: r.asks}
	l.write(&m.Header, now, r.config.Resend)
	p := &r.terms.peers[to]
	if l.incarnation <= p.fenced {
		m.Echo = 0 // no answer, no term
	}
	for i := range r.terms.peers {
		m.Fenced = append(m.Fenced, r.terms.peers[i].fenced)
	}
	m.Free, m.Lost = max(1, p.claim.until), r.lostAt
	m.Position = r.journal.since(m.Base, r.journal.position, MaxBatch, func(e *right) {
		for i := range e.peers {
			if a := &e.peers[i]; a.region == to && (a.out.Share > 0 || a.in.Share > 0) {
				m.Grants = append(m.Grants, Transfer{e.key, e.epoch, a.out, a.in})
			}
		}
	})
	m.Partial = m.Position < r.journal.position
	l.wrote(m.Position, now)
	return m
}

// Receive takes in a message, and answers what it asks for as far as this region can spare
// it. The answer travels with the next message.
func (r *Rights) Receive(m *RightsMessage, wall int64, now time.Duration) {
	if m.From < 0 || m.From >= len(r.links) || m.From == r.config.Self {
		return
	}
	r.wall = max(r.wall, wall)
	l := &r.links[m.From]
	was := *l
	if !l.read(&m.Header, r.config.Incarnation, now) {
		return
	}
	fresh := l.stamp > was.stamp || l.incarnation > was.incarnation
	r.terms.hear(m, fresh, r.config.Incarnation, now, r.wall)
	for i := range m.Grants {
		r.merge(m.From, &m.Grants[i])
	}
	if m.Heard == r.config.Incarnation && m.Base <= l.got && l.got >= m.Position && !m.Partial {
		r.peerLost[m.From] = m.Lost
		if r.merged[m.From] = true; r.completeAt == 0 && r.complete(r.lostAt) {
			r.completeAt = r.wall
		}
	}
	for i := range m.Asks {
		r.answer(m.From, &m.Asks[i], now)
	}
}

// merge takes in what passed between this region and another. Each side's grants only
// grow, so the larger is the later; what this region gave, it has forgotten if another
// knows of more.
func (r *Rights) merge(from int, t *Transfer) {
	l := r.config.Limit(t.Key)
	if l == nil || t.Epoch < 0 || t.Epoch%r.epochLength(l) != 0 || !t.Gave.valid(l) || !t.Got.valid(l) {
		return
	}
	if now := r.epochOf(l, r.wall); t.Epoch < now || t.Epoch > now+r.epochLength(l) {
		return
	}
	if r.entries[part{t.Key, t.Epoch}] == nil && len(r.entries) >= r.config.MaxKeys {
		return // rights that nobody can use: safe
	}
	e := r.entry(l, part{t.Key, t.Epoch})
	if e.active {
		e = r.use(l, t.Key, r.wall)
	}
	a := e.account(from)
	if lost := t.Got.Share - a.out.Share; lost > 0 {
		a.out = t.Got
		if e.active {
			e.share -= lost
			if !isBucket(l) {
				e.avail -= lost // nothing has been spent before all is known
			}
			e.avail = min(e.avail, r.capacity(e))
		}
	}
	if t.Gave.Share > a.in.Share {
		was := a.in
		a.in = t.Gave
		if e.active {
			r.receive(e, was, t.Gave)
		}
		r.journal.touch(&e.place) // so that a giver who forgets can be told
	}
}

// valid keeps sums exact, whatever a peer says.
func (g Grant) valid(l *limiter.Limit) bool {
	most := int64(maxCount)
	if isBucket(l) {
		most = never
	}
	return g.Share >= 0 && g.Share < maxCount && g.From >= 0 && g.Now >= 0 && g.Now < most
}

// answer gives what a region asks for and this one does not need. If there is too little
// for all, it keeps its part by demand. It leaves less than a fiftieth where it is, so that
// demand which only seems to change moves nothing.
func (r *Rights) answer(to int, ask *Ask, now time.Duration) {
	l := r.config.Limit(ask.Key)
	if l == nil || ask.Now < 0 || ask.Share < 0 || ask.Demand < 0 || ask.Demand > limiter.MaxCount {
		return
	}
	e := r.use(l, ask.Key, r.wall)
	a := e.account(to)
	a.demand, a.demandAt = ask.Demand, now
	if !r.terms.good(now, r.wall) || !r.complete(e.epoch) || r.turning(e) {
		return
	}
	own, rest := r.demand(e, now)
	all := max(1, own)
	for i := range e.peers {
		if p := &e.peers[i]; p.demand > 0 && now-p.demandAt <= demandFor {
			all += p.demand
		}
	}
	// Its part of the limit by demand, rounded up; what it holds beyond that is spare.
	fair := min(e.share, part64(l.Limit, own, all)+min(own, 1))
	avail := max(0, e.avail) / scale(l)
	kept := avail
	if e.share > 0 {
		kept = min(rest, part64(avail, fair, e.share)+min(own, 1))
	}
	give := min(ask.Now, avail-kept)
	share := min(ask.Share, e.share-min(own, fair))
	if give < 0 {
		give = 0
	}
	share = min(max(share, give), e.share)
	if isBucket(l) {
		full := l.Capacity() * scale(l)
		// What the rest of the share cannot hold goes along.
		give = max(give*scale(l), e.avail-part64(full, e.share-share, l.Limit))
		give = min(give, e.avail, part64(full, share, l.Limit))
	} else {
		share = min(share, e.share-e.avail+give)
	}
	if least := e.share / 50; share > least || share > 0 && own == 0 {
		r.give(e, to, share, give)
	}
}

// Sweep gives back what this region got and nobody asks it for, and forgets epochs that
// no longer matter.
func (r *Rights) Sweep(wall int64, now time.Duration) {
	r.wall = max(r.wall, wall)
	for p, e := range r.entries {
		if p.epoch+2*r.epochLength(e.limit) <= r.wall {
			r.journal.remove(&e.place)
			delete(r.entries, p)
			delete(r.short, e)
			continue
		}
		idle := e.active && e.share > e.base && now-e.pace.began >= idleAfter
		if !idle || p.epoch != r.epochOf(e.limit, r.wall) || !r.terms.good(now, r.wall) || !r.complete(p.epoch) {
			continue
		}
		if e = r.use(e.limit, e.key, r.wall); r.turning(e) {
			continue
		}
		for i := range e.peers {
			a := &e.peers[i]
			back := min(e.share-e.base, a.in.Share-a.out.Share)
			if back > 0 {
				give := min(e.avail, back)
				if isBucket(e.limit) {
					give = min(e.avail, part64(e.limit.Capacity()*scale(e.limit), back, e.limit.Limit))
				}
				r.give(e, a.region, back, give)
			}
		}
	}
}

// Held returns what this region holds of a key: its share of the limit, and what of it may
// be spent now.
func (r *Rights) Held(l *limiter.Limit, key string, wall int64) (share, avail int64) {
	e := r.use(l, key, wall)
	return e.share, e.avail / scale(l)
}
