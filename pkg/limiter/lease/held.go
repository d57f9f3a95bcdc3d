package lease

import (
	"container/heap"
	"time"

	"github.com/weir-edge/weir/pkg/limiter"
)

const (
	// A key becomes hot with this many requests in a lease time, and cold again below
	// coldAt units in one. Between them it keeps what it is.
	hotAt, coldAt = 4, 2
	// firstTrip is how long a call to the store takes until one was measured.
	firstTrip = time.Millisecond
)

// lease is what this node holds of one key. Its shard's lock guards it.
type lease struct {
	shard *shard
	limit *limiter.Limit
	key   string
	use   *usage
	time  time.Duration // the limit's lease time

	// Two grants at most: the next one is asked for before the first is spent.
	older, newer  parcel
	remaining     int64         // at the store, after the last grant
	reset         time.Duration // when the whole limit is free again
	asking, ended bool
	asked         uint64        // counts forgets, so that a late answer is recognized
	forgotten     int64         // the newest charge that an operator's reset has cleared
	resume        time.Duration // ask no sooner
	trip          time.Duration // how long the last call took

	// See saturated.go.
	saturated, hidden bool
	quiet             time.Duration // until then, what no units are held for is refused
	floor             int64         // if it costs as much
	free              time.Duration // when the store expected to pass what it refused

	pace   int64         // units expected in a lease time
	demand int64         // units requested in this one
	period time.Duration // its end

	due time.Duration // when the sweeper looks at it
}

// parcel is what one grant has left.
type parcel struct {
	units, size int64
	from, until time.Duration
	takenAt     int64
}

// valid reports whether the units may be spent by a request that came at now. One that
// came before the grant must not: it would count in an interval that the grant was not
// charged in.
func (p *parcel) valid(now time.Duration) bool { return p.from <= now && now < p.until }

// from returns the grant to spend cost from, the one that ends first if possible; nil if
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

// unspend reports whether a grant of that time is still here to take the units back. Two
// grants of a bucket may have one time; the units are those of the one that they fit in.
func (l *lease) unspend(units, takenAt int64) bool {
	for _, p := range [...]*parcel{&l.older, &l.newer} {
		if p.size > 0 && p.takenAt == takenAt && p.units+units <= p.size {
			p.units += units
			return true
		}
	}
	return false
}

// observe counts the demand, granted or not.
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

// wants returns how many units to ask for now, so that they arrive before what is held is
// spent; 0 for none.
func (l *lease) wants(now time.Duration) int64 {
	if l.asking || l.ended || now < l.resume || l.newer.units > 0 || l.saturated && now < l.free {
		return 0
	}
	// A demand that grows is extrapolated from the part of the period that has passed.
	passed := max(l.time-(l.period-now), l.time/8)
	expected := max(l.pace, int64(float64(l.demand)*float64(l.time)/float64(passed)))
	soon := 2 * l.trip
	if l.older.valid(now) && l.older.until-now > soon && l.older.units > int64(float64(expected)*float64(soon)/float64(l.time)) {
		return 0
	}
	if expected < coldAt {
		return 0
	}
	// A little less than expected: what is left over has to be returned, which takes a call.
	most := int64(limiter.MaxCount)
	if l.limit.Storage == limiter.SortedSet {
		most = limiter.MaxEntries
	}
	return min((3*expected+3)/4, most)
}

// arrive adds a grant. It reports false if there is nobody to spend it.
func (l *lease) arrive(p parcel) bool {
	if l.ended || p.until <= p.from {
		return false
	}
	if l.older.units == 0 {
		l.older.retire(l.use)
		l.older = p
	} else {
		l.newer.retire(l.use) // empty, or nothing would have been asked
		l.newer = p
	}
	return true
}

// lapsed takes out what may no longer be spent, to be returned.
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

// leave takes out all that is held, to be returned.
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

// forget drops what is held without returning it: after a reset, the store no longer
// counts it.
func (l *lease) forget() {
	for _, p := range [...]*parcel{&l.older, &l.newer} {
		l.forgotten = max(l.forgotten, p.takenAt)
		l.use.stranded.Add(p.units)
		p.retire(l.use)
	}
	l.asked++
	l.saturated, l.quiet, l.free, l.resume = false, 0, 0, 0
}

// retire empties a parcel and counts what was spent of it.
func (p *parcel) retire(u *usage) {
	u.spent.Add(p.size - p.units)
	*p = parcel{}
}

// next is when the sweeper has something to do here.
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
