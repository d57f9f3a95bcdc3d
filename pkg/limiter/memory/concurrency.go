package memory

import "github.com/weir-edge/weir/pkg/limiter"

// concurrency holds the slots of the requests in flight, each with the time at which it
// expires unless released.
type concurrency struct {
	now   int64
	slots []slot // ordered by expiry
	first int    // the first unexpired one
}

type slot struct {
	id      uint64
	expires int64
}

func (s *concurrency) at(_ *limiter.Limit, now int64) {
	s.now, s.first = now, 0
	for s.first < len(s.slots) && s.slots[s.first].expires <= now {
		s.first++
	}
}

func (s *concurrency) settle() {} // a slot expires when the clock says so

func (s *concurrency) inFlight() int64 { return int64(len(s.slots) - s.first) }

func (s *concurrency) fits(l *limiter.Limit, cost, n int64) int64 {
	if cost > 1 {
		return 0 // a request needs one slot
	}
	return howMany(l, l.Limit-s.inFlight(), cost, n)
}

func (s *concurrency) charge(l *limiter.Limit, units int64, id uint64, _ bool) {
	if units == 0 {
		return
	}
	if s.first > 0 {
		s.slots = append(s.slots[:0], s.slots[s.first:]...)
		s.first = 0
	}
	added := slot{id, s.now + l.Window.Microseconds()}
	i := len(s.slots)
	s.slots = append(s.slots, added)
	for ; i > 0 && s.slots[i-1].expires > added.expires; i-- { // inserted after a shorter window
		s.slots[i] = s.slots[i-1]
	}
	s.slots[i] = added
}

// answer returns no retry time: a slot may become free at any moment.
func (s *concurrency) answer(l *limiter.Limit, _ int64) (remaining, retry, reset int64) {
	if s.inFlight() > 0 {
		reset = s.slots[len(s.slots)-1].expires - s.now
	}
	return max(0, l.Limit-s.inFlight()), 0, reset
}

func (s *concurrency) refund(_ *limiter.Limit, _, _ int64, id uint64) {
	for i := range s.slots {
		if s.slots[i].id == id {
			s.slots = append(s.slots[:i], s.slots[i+1:]...)
			return
		}
	}
}
