package memory

import (
	"math"
	"sort"

	"github.com/weir-edge/weir/pkg/limiter"
)

// rollingWindow is the log of the accepted requests, oldest first. Times are
// multiples of grain, rounded up, so that an entry never leaves the window early:
// 1 for storage sorted_set, 1000 (a millisecond) for ring.
type rollingWindow struct {
	grain  int64
	now    int64
	times  []int64
	first  int     // the oldest entry that still counts
	latest int64   // the clock was set back: later entries count as of this time
	buffer []int64 // empty backing array that times moves through
}

// floor is now, rounded for computing ages.
func (s *rollingWindow) floor() int64 { return s.now - s.now%s.grain }

// ceil returns a time rounded for stamping entries.
func (s *rollingWindow) ceil(t int64) int64 { return (t + s.grain - 1) / s.grain * s.grain }

// time returns when entry i was charged.
func (s *rollingWindow) time(i int) int64 { return min(s.times[i], s.latest) }

func (s *rollingWindow) settle() {
	for i := len(s.times) - 1; i >= 0 && s.times[i] > s.latest; i-- {
		s.times[i] = s.latest
	}
}

func (s *rollingWindow) at(l *limiter.Limit, now int64) {
	s.now, s.latest = now, math.MaxInt64
	if k := len(s.times); k > 0 {
		if _, stepped := clock(l, now, s.times[k-1]); stepped {
			s.latest = s.ceil(now)
		}
	}
	edge := s.floor() - l.Window.Microseconds()
	s.first = 0
	if len(s.times) > 0 && s.times[0] <= edge {
		s.first = sort.Search(len(s.times), func(i int) bool { return s.times[i] > edge })
	}
}

func (s *rollingWindow) fits(l *limiter.Limit, cost, n int64) int64 {
	if cost > l.MaxCost() {
		return 0
	}
	if interval := l.MinInterval.Microseconds(); interval > 0 {
		if k := len(s.times); k > 0 && s.floor()-s.time(k-1) < interval {
			return 0
		}
		if cost > 0 {
			n = min(n, 1)
		}
	}
	return howMany(l, l.Limit-int64(len(s.times)-s.first), cost, n)
}

func (s *rollingWindow) charge(l *limiter.Limit, units int64, _ uint64, advance bool) {
	units = min(units, l.MaxCost())
	stamp := s.ceil(s.now)
	if advance { // no entry may leave the log before a window has passed since it was spent
		stamp = s.ceil(s.now + l.LeaseTime().Microseconds())
	}
	if k := len(s.times); k > 0 {
		stamp = max(stamp, s.time(k-1))
	}
	// A denied attempt that counts pushes out the oldest entries, but a log that a larger
	// tier filled is not cut down to this tier's limit.
	live := len(s.times) - s.first
	keep := s.first + max(0, live+int(units)-max(live, int(l.Limit)))
	s.times, s.first = s.times[keep:], 0
	if need := len(s.times) + int(units); need > cap(s.times) {
		// At the end of the buffer, return to its front. Doubling its capacity makes that
		// rare enough to cost nothing, however long the log.
		if 2*need > cap(s.buffer) {
			s.buffer = make([]int64, 0, 2*need)
		}
		s.times = append(s.buffer, s.times...)
	}
	for range units {
		s.times = append(s.times, stamp)
	}
}

func (s *rollingWindow) answer(l *limiter.Limit, cost int64) (remaining, retry, reset int64) {
	size := len(s.times)
	if size == 0 {
		return l.Limit, 0, 0
	}
	window, newest := l.Window.Microseconds(), s.time(size-1)
	count := int64(size - s.first)
	if count > 0 {
		reset = newest + window - s.now
	}
	if over := count + min(cost, l.Limit) - l.Limit; over > 0 && cost > 0 { // a higher cost never passes
		retry = s.time(s.first+int(over)-1) + window - s.now
	}
	retry = max(retry, newest+l.MinInterval.Microseconds()-s.now)
	return max(0, l.Limit-count), retry, reset
}

func (s *rollingWindow) refund(_ *limiter.Limit, units, takenAt int64, _ uint64) {
	stamp := s.ceil(takenAt)
	last := sort.Search(len(s.times), func(i int) bool { return s.times[i] > stamp })
	before := last
	for before > 0 && int64(last-before) < units && s.times[before-1] == stamp {
		before--
	}
	s.times = append(s.times[:before], s.times[last:]...)
}
