package memory

import "github.com/weir-edge/weir/pkg/limiter"

// concurrency holds the requests in flight: their leases, each with the time at
// which it expires should nobody release it.
type concurrency struct {
	now    int64
	leases []lease // in the order of expiry
	first  int     // the first that has not expired
}

type lease struct {
	id      uint64
	expires int64
}

func (s *concurrency) at(_ *limiter.Limit, now int64) {
	s.now, s.first = now, 0
	for s.first < len(s.leases) && s.leases[s.first].expires <= now {
		s.first++
	}
}

func (s *concurrency) inFlight() int64 { return int64(len(s.leases) - s.first) }

func (s *concurrency) fits(l *limiter.Limit, cost, n int64) int64 {
	if cost > 1 {
		return 0 // a request has one lease
	}
	return howMany(l.Limit-s.inFlight(), cost, n)
}

func (s *concurrency) charge(l *limiter.Limit, units int64, id uint64) {
	if units == 0 {
		return
	}
	if s.first > 0 {
		s.leases = append(s.leases[:0], s.leases[s.first:]...)
		s.first = 0
	}
	added := lease{id, s.now + l.Window.Microseconds()}
	i := len(s.leases)
	s.leases = append(s.leases, added)
	for ; i > 0 && s.leases[i-1].expires > added.expires; i-- { // after a shorter window
		s.leases[i] = s.leases[i-1]
	}
	s.leases[i] = added
}

// answer gives no time to retry after: a slot may come free at any moment.
func (s *concurrency) answer(l *limiter.Limit, _ int64) (remaining, retry, reset int64) {
	if s.inFlight() > 0 {
		reset = s.leases[len(s.leases)-1].expires - s.now
	}
	return max(0, l.Limit-s.inFlight()), 0, reset
}

func (s *concurrency) refund(_ *limiter.Limit, _, _ int64, id uint64) {
	for i := range s.leases {
		if s.leases[i].id == id {
			s.leases = append(s.leases[:i], s.leases[i+1:]...)
			return
		}
	}
}
