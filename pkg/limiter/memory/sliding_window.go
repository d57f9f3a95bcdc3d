package memory

import "github.com/weir-edge/weir/pkg/limiter"

// slidingWindow weighs the previous window's count by how much of it the sliding
// window still covers, and adds the current one's. Weights are whole
// milliseconds, so all sums are exact.
type slidingWindow struct{ now, start, previous, current int64 }

func (s *slidingWindow) at(l *limiter.Limit, now int64) {
	window := l.Window.Microseconds()
	s.now = max(now, s.start)
	start := s.now - s.now%window
	if s.start < start {
		if s.start+window >= start {
			s.previous = s.current
		} else {
			s.previous = 0
		}
		s.current = 0
	}
	s.start = start
}

// free returns what is left, in requests × milliseconds of a full window.
func (s *slidingWindow) free(l *limiter.Limit) int64 {
	width := l.Window.Milliseconds()
	elapsed := (s.now - s.start) / 1000
	return l.Limit*width - s.previous*(width-elapsed) - s.current*width
}

func (s *slidingWindow) fits(l *limiter.Limit, cost, n int64) int64 {
	return howMany(s.free(l), cost*l.Window.Milliseconds(), n)
}

func (s *slidingWindow) charge(l *limiter.Limit, units int64, _ uint64) {
	s.current = min(s.current+units, (1<<51)/l.Window.Milliseconds())
}

func (s *slidingWindow) answer(l *limiter.Limit, cost int64) (remaining, retry, reset int64) {
	window, width := l.Window.Microseconds(), l.Window.Milliseconds()
	free := s.free(l)
	if free < cost*width {
		room := l.Limit - cost
		if s.current <= room { // the previous window has to fade a little more
			retry = s.start + ceilDiv((s.previous-(room-s.current))*width, s.previous)*1000 - s.now
		} else { // the current one has to become the previous, and fade
			retry = s.start + window + ceilDiv((s.current-room)*width, s.current)*1000 - s.now
		}
	}
	switch {
	case s.current > 0:
		reset = s.start + 2*window - s.now
	case s.previous > 0:
		reset = s.start + window - s.now
	}
	return max(0, free) / width, retry, reset
}

func (s *slidingWindow) refund(l *limiter.Limit, units, takenAt int64, _ uint64) {
	window := l.Window.Microseconds()
	switch takenAt - takenAt%window {
	case s.start:
		s.current = max(0, s.current-units)
	case s.start - window:
		s.previous = max(0, s.previous-units)
	}
}
