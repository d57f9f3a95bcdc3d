package oracle

import (
	"math"
	"sort"
)

const (
	longAgo  = math.MinInt64 / 4
	farAhead = math.MaxInt64 / 4
)

// series is amounts at points in time, in order, each with the sum of all up to it.
// Pruned entries are only a sum.
type series struct {
	at     []int64
	sum    []int64
	mate   []int64 // the other end of the request's interval
	base   int64   // sum of what was pruned
	count  int64   // number of what was pruned
	pruned int64   // all at or before this time is in base
}

func newSeries() series { return series{pruned: longAgo} }

// index returns how many entries are at or before t.
func (s *series) index(t int64) int {
	n := len(s.at)
	if n == 0 || s.at[n-1] <= t { // nearly always
		return n
	}
	return sort.Search(n, func(i int) bool { return s.at[i] > t })
}

// add records an amount. One too old to be told from pruned entries joins their sum.
func (s *series) add(t, amount, mate int64) {
	i := s.index(t)
	if t <= s.pruned {
		s.base += amount
		s.count++
	} else {
		sum := s.base
		if i > 0 {
			sum = s.sum[i-1]
		}
		s.at, s.sum, s.mate = append(s.at, 0), append(s.sum, 0), append(s.mate, 0)
		copy(s.at[i+1:], s.at[i:])
		copy(s.sum[i+1:], s.sum[i:])
		copy(s.mate[i+1:], s.mate[i:])
		s.at[i], s.sum[i], s.mate[i] = t, sum, mate
	}
	for ; i < len(s.sum); i++ {
		s.sum[i] += amount
	}
}

// upTo returns the sum of the amounts at or before t; before the pruned time that is
// too much.
func (s *series) upTo(t int64) int64 {
	if i := s.index(t); i > 0 {
		return s.sum[i-1]
	}
	return s.base
}

// number returns how many entries are at or before t.
func (s *series) number(t int64) int64 { return s.count + int64(s.index(t)) }

// when returns the time at which the sum reaches amount, or false if it never does or
// did so before the pruned time.
func (s *series) when(amount int64) (int64, bool) {
	i := sort.Search(len(s.sum), func(i int) bool { return s.sum[i] >= amount })
	if amount <= s.base || i == len(s.sum) {
		return 0, false
	}
	return s.at[i], true
}

// removeLast removes the latest entry, and its request's entry from other.
func (s *series) removeLast(other *series) (amount int64) {
	last := len(s.at) - 1
	if last < 0 {
		return 0
	}
	amount = s.base
	if last > 0 {
		amount = s.sum[last-1]
	}
	amount = s.sum[last] - amount
	other.remove(s.mate[last], s.at[last], amount)
	s.at, s.sum, s.mate = s.at[:last], s.sum[:last], s.mate[:last]
	return amount
}

func (s *series) remove(t, mate, amount int64) {
	i := s.index(t) - 1
	for i >= 0 && s.at[i] == t && s.mate[i] != mate {
		i--
	}
	if i < 0 || s.at[i] != t {
		s.base -= amount // it was pruned meanwhile
		s.count--
		i = -1
	} else {
		s.at = append(s.at[:i], s.at[i+1:]...)
		s.sum = append(s.sum[:i], s.sum[i+1:]...)
		s.mate = append(s.mate[:i], s.mate[i+1:]...)
		i--
	}
	for i++; i < len(s.sum); i++ {
		s.sum[i] -= amount
	}
}

// prune forgets the entries at or before t, except for their sum.
func (s *series) prune(t int64) {
	s.pruned = max(s.pruned, t)
	i := s.index(t)
	if i == 0 {
		return
	}
	s.base, s.count = s.sum[i-1], s.count+int64(i)
	s.at = append(s.at[:0], s.at[i:]...)
	s.sum = append(s.sum[:0], s.sum[i:]...)
	s.mate = append(s.mate[:0], s.mate[i:]...)
}

// flow is requests with the interval in which each was decided: after it was sent, and
// before it was answered.
type flow struct{ sent, answered series }

func newFlow() flow { return flow{newSeries(), newSeries()} }

func (f *flow) add(sent, answered, cost int64) {
	f.sent.add(sent, cost, answered)
	f.answered.add(answered, cost, sent)
}

func (f *flow) prune(t int64) {
	f.sent.prune(t)
	f.answered.prune(t)
}

// within is the least cost decided after x and not after y, whatever the decision
// times: what was sent after x and answered by y. (At least: subtracting what was sent
// by x and answered after y is unnecessary.)
func (f *flow) within(x, y int64) int64 {
	return max(0, f.answered.upTo(y)-f.sent.upTo(x))
}

// levels is a bucket that amounts fill and time drains: the level after each amount.
type levels struct {
	rate float64 // drained in a microsecond
	full float64 // the level never exceeds it
	at   []int64
	cost []float64
	lvl  []float64
	// What the first entry finds.
	startAt int64
	start   float64
}

func (l *levels) drained(level float64, from, to int64) float64 {
	if level <= 0 {
		return 0
	}
	return max(0, level-float64(to-from)*l.rate)
}

// add records an amount, and returns false if it comes too late to be placed.
func (l *levels) add(t int64, cost float64) bool {
	if t < l.startAt {
		return false
	}
	i := len(l.at)
	for i > 0 && l.at[i-1] > t {
		i--
	}
	l.at, l.cost, l.lvl = append(l.at, 0), append(l.cost, 0), append(l.lvl, 0)
	copy(l.at[i+1:], l.at[i:])
	copy(l.cost[i+1:], l.cost[i:])
	l.at[i], l.cost[i] = t, cost
	for ; i < len(l.at); i++ {
		from, level := l.startAt, l.start
		if i > 0 {
			from, level = l.at[i-1], l.lvl[i-1]
		}
		l.lvl[i] = min(l.full, l.drained(level, from, l.at[i])+l.cost[i])
	}
	return true
}

// level returns the level at t.
func (l *levels) level(t int64) float64 {
	i := len(l.at)
	if i > 0 && l.at[i-1] > t {
		i = sort.Search(i, func(j int) bool { return l.at[j] > t })
	}
	if i == 0 {
		if t < l.startAt {
			return l.full // unknown
		}
		return l.drained(l.start, l.startAt, t)
	}
	return l.drained(l.lvl[i-1], l.at[i-1], t)
}

func (l *levels) removeLast() {
	if n := len(l.at) - 1; n >= 0 {
		l.at, l.cost, l.lvl = l.at[:n], l.cost[:n], l.lvl[:n]
	}
}

func (l *levels) prune(t int64) {
	i := sort.Search(len(l.at), func(j int) bool { return l.at[j] > t })
	if i == 0 {
		return
	}
	l.startAt, l.start = l.at[i-1], l.lvl[i-1]
	l.at = append(l.at[:0], l.at[i:]...)
	l.cost = append(l.cost[:0], l.cost[i:]...)
	l.lvl = append(l.lvl[:0], l.lvl[i:]...)
}
