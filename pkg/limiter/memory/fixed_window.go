package memory

import "github.com/weir-edge/weir/pkg/limiter"

// fixedWindow counts per window; windows are aligned to the Unix epoch.
type fixedWindow struct{ now, start, count int64 }

func (s *fixedWindow) at(l *limiter.Limit, now int64) {
	window := l.Window.Microseconds()
	s.now = max(now, s.start)
	start := s.now - s.now%window
	if s.start < start {
		s.count = 0
	}
	s.start = start
}

func (s *fixedWindow) fits(l *limiter.Limit, cost, n int64) int64 {
	return howMany(l.Limit-s.count, cost, n)
}

func (s *fixedWindow) charge(_ *limiter.Limit, units int64, _ uint64) {
	s.count = min(s.count+units, 1<<52)
}

func (s *fixedWindow) answer(l *limiter.Limit, cost int64) (remaining, retry, reset int64) {
	left := s.start + l.Window.Microseconds() - s.now
	if s.count+cost > l.Limit {
		retry = left
	}
	if s.count > 0 {
		reset = left
	}
	return max(0, l.Limit-s.count), retry, reset
}

func (s *fixedWindow) refund(l *limiter.Limit, units, takenAt int64, _ uint64) {
	if s.start == takenAt-takenAt%l.Window.Microseconds() {
		s.count = max(0, s.count-units)
	}
}
