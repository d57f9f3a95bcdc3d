package lease

import (
	"container/heap"
	"time"

	"github.com/weir-edge/weir/pkg/limiter"
)

const (
	// A key becomes hot with this many requests in a lease time, and cold below coldAt
	// units in one. In between it stays what it was.
	hotAt, coldAt = 4, 2
	// firstTrip is the assumed duration of a call to the store until one has been measured.
	firstTrip = time.Millisecond
)

// lease is what this node holds of one key. Its shard's lock guards it.
type lease struct {
	shard *shard
	limit *limiter.Limit
	key   string
	use   *usage
	time  time.Duration // the limit's lease time

	// At most two grants: the next one is requested before the first is spent.
	older, newer  parcel
	remaining     int64         // at the store, after the last grant
	reset         time.Duration // when the whole limit is free again
	asking, ended bool
	requests      uint64        // counts forgets, so that a late answer is recognized
	forgotten     int64         // the newest charge that an operator's reset has cleared
	resume        time.Duration // when to ask again
	trip          time.Duration // how long the last call took

	// See saturated.go.
	saturated, hidden bool
	quiet             time.Duration // until then, requests without units are refused
	floor             int64         // if they cost at least this
	free              time.Duration // when the store expected to pass what it refused

	pace   int64         // units expected in a lease time
	demand int64         // units requested in the current one
	period time.Duration // its end

	due time.Duration // when the sweeper looks at it
}

// parcel is what is left of one grant.
type parcel struct {
	units, size int64
	from, until time.Duration
	takenAt     int64
}

// valid reports whether a request that arrived at now may spend the units. A request that
// arrived before the grant must not: it would count in an interval for which the grant was
// not charged.
func (p *parcel) valid(now time.Duration) bool { return p.from <= now && now < p.until }

// from returns the grant to spend cost from, preferring the one that ends first, or nil if
// neither has enough.
func (l *lease) from(cost int64, now time.Duration) *parcel {
	if l.older.units == 0 {
		l.older.retire(l.use)
		l.older, l.newer = l.newer, parcel{}
	}
	for _, p := range [...]*parcel{&l.older, &l.newer} {
		if p.size > 0 && p.units >= cost && p.valid(now) {
			return p
		}
	}
	return nil
}

// unspend puts units back into the grant made at takenAt, and reports whether that grant
// still exists. Two grants of a bucket may have the same time; the units go back to the one
// they fit.
func (l *lease) unspend(units, takenAt int64) bool {
	for _, p := range [...]*parcel{&l.older, &l.newer} {
		if p.size > 0 && p.takenAt == takenAt && p.units+units <= p.size {
			p.units += units
			return true
		}
	}
	return false
}

// observe records demand, granted or not.
func (l *lease) observe(cost int64, now time.Duration) {
	if now >= l.period {
		l.pace = max(l.demand, (l.pace+l.demand)/2)
		for missed := (now - l.period) / l.time; missed > 0 && l.pace > 0; missed-- {
			l.pace /= 2
		}
		l.demand, l.period = 0, now+l.time
	}
	l.demand += cost
}

// wants returns how many units to ask for now so that they arrive before the held ones are
// spent, or 0.
func (l *lease) wants(now time.Duration) int64 {
	if l.asking || l.ended || now < l.resume || l.newer.units > 0 || l.saturated && now < l.free {
		return 0
	}
	// Extrapolate growing demand from the part of the period that has passed.
	passed := max(l.time-(l.period-now), l.time/8)
	expected := max(l.pace, int64(float64(l.demand)*float64(l.time)/float64(passed)))
	soon := 2 * l.trip
	if l.older.valid(now) && l.older.until-now > soon && l.older.units > int64(float64(expected)*float64(soon)/float64(l.time)) {
		return 0
	}
	if expected < coldAt {
		return 0
	}
	// Ask for a little less than expected: leftover units cost a call to return.
	most := int64(limiter.MaxCount)
	if l.limit.Storage == limiter.SortedSet {
		most = limiter.MaxEntries
	}
	return min((3*expected+3)/4, most)
}

// arrive adds a grant. It reports false if the lease is gone, so that nothing can spend it.
func (l *lease) arrive(p parcel) bool {
	if l.ended || p.until <= p.from {
		return false
	}
	if l.older.units == 0 {
		l.older.retire(l.use)
		l.older = p
	} else {
		l.newer.retire(l.use) // empty, or no grant would have been requested
		l.newer = p
	}
	return true
}

// lapsed removes units that may no longer be spent and returns them as jobs.
func (l *lease) lapsed(now time.Duration) (unspent []job) {
	for _, p := range [...]*parcel{&l.older, &l.newer} {
		if p.size > 0 && now >= p.until {
			unspent = l.takeOut(p, unspent)
		}
	}
	if l.older.units == 0 {
		l.older.retire(l.use)
		l.older, l.newer = l.newer, parcel{}
	}
	return unspent
}

// leave removes all units held and returns them as jobs.
func (l *lease) leave() (unspent []job) {
	return l.takeOut(&l.newer, l.takeOut(&l.older, nil))
}

func (l *lease) takeOut(p *parcel, unspent []job) []job {
	if p.units > 0 {
		unspent = append(unspent, job{limit: l.limit, key: l.key, units: p.units, takenAt: p.takenAt, use: l.use})
	}
	p.retire(l.use)
	return unspent
}

// forget drops the held units without returning them: after a reset, the store no longer
// counts them.
func (l *lease) forget() {
	for _, p := range [...]*parcel{&l.older, &l.newer} {
		l.forgotten = max(l.forgotten, p.takenAt)
		l.use.stranded.Add(p.units)
		p.retire(l.use)
	}
	l.requests++
	l.saturated, l.quiet, l.free, l.resume = false, 0, 0, 0
}

// retire empties a parcel and counts how much of it was spent.
func (p *parcel) retire(u *usage) {
	u.spent.Add(p.size - p.units)
	*p = parcel{}
}

// next returns when the sweeper must next visit this lease.
func (l *lease) next(now time.Duration) time.Duration {
	at := now + l.time
	for _, p := range [...]*parcel{&l.older, &l.newer} {
		if p.units > 0 {
			at = min(at, p.until)
		}
	}
	return at
}

// queue orders the leases of a shard by when they are due.
type queue []*lease

func (q *queue) add(l *lease) { heap.Push(q, l) }

// Len implements heap.Interface.
func (q queue) Len() int { return len(q) }

// Less implements heap.Interface.
func (q queue) Less(i, j int) bool { return q[i].due < q[j].due }

// Swap implements heap.Interface.
func (q queue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }

// Push implements heap.Interface.
func (q *queue) Push(l any) { *q = append(*q, l.(*lease)) }

// Pop implements heap.Interface.
func (q *queue) Pop() any {
	last := len(*q) - 1
	l := (*q)[last]
	(*q)[last], *q = nil, (*q)[:last]
	return l
}
