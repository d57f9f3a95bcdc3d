package memory

import "github.com/weir-edge/weir/pkg/limiter"

// slidingWindow adds the current window's count to the previous one's, weighted by how
// much of it the sliding window still covers. Weights are whole milliseconds, so all sums
// are exact.
type slidingWindow struct {
	kept, seen struct{ start, previous, current int64 } // as last charged, and as of now
	now        int64
	stepped    bool
}

func (s *slidingWindow) at(l *limiter.Limit, now int64) {
	window := l.Window.Microseconds()
	s.now, s.stepped = clock(l, now, s.kept.start)
	start := s.now - s.now%window
	s.seen = s.kept
	if s.kept.start < start {
		s.seen.previous, s.seen.current = 0, 0
		if s.kept.start+window >= start {
			s.seen.previous = s.kept.current
		}
	}
	s.seen.start = start
}

func (s *slidingWindow) settle() {
	if s.stepped {
		s.kept = s.seen
	}
}

// free returns what is left, in requests × milliseconds of a full window.
func (s *slidingWindow) free(l *limiter.Limit) int64 {
	width := l.Window.Milliseconds()
	elapsed := (s.now - s.seen.start) / 1000
	return l.Limit*width - s.seen.previous*(width-elapsed) - s.seen.current*width
}

func (s *slidingWindow) fits(l *limiter.Limit, cost, n int64) int64 {
	return howMany(l, s.free(l), cost*l.Window.Milliseconds(), n)
}

// charge counts up to a cap that is no less than any valid limit and keeps the scripts'
// weighted sums exact.
func (s *slidingWindow) charge(l *limiter.Limit, units int64, _ uint64, _ bool) {
	s.seen.current = min(s.seen.current+units, (1<<52)/l.Window.Milliseconds())
	s.kept = s.seen
}

func (s *slidingWindow) answer(l *limiter.Limit, cost int64) (remaining, retry, reset int64) {
	window, width := l.Window.Microseconds(), l.Window.Milliseconds()
	start, previous, current := s.seen.start, s.seen.previous, s.seen.current
	free := s.free(l)
	cost = min(cost, l.Limit) // a higher cost never passes
	if free < cost*width {
		room := l.Limit - cost
		if current <= room { // until the previous window has faded enough
			retry = start + ceilDiv((previous-(room-current))*width, previous)*1000 - s.now
		} else { // until the current window has become the previous one and faded
			retry = start + window + ceilDiv((current-room)*width, current)*1000 - s.now
		}
	}
	switch {
	case current > 0:
		reset = start + 2*window - s.now
	case previous > 0:
		reset = start + window - s.now
	}
	return max(0, free) / width, retry, reset
}

func (s *slidingWindow) refund(l *limiter.Limit, units, takenAt int64, _ uint64) {
	if s.seen.previous+s.seen.current == 0 {
		return
	}
	window := l.Window.Microseconds()
	switch takenAt - takenAt%window {
	case s.seen.start:
		s.seen.current = max(0, s.seen.current-units)
	case s.seen.start - window:
		s.seen.previous = max(0, s.seen.previous-units)
	default:
		return
	}
	s.kept = s.seen
}
