package memory

import "github.com/weir-edge/weir/pkg/limiter"

// fixedWindow counts per window; windows are aligned to the Unix epoch.
type fixedWindow struct {
	kept, seen struct{ start, count int64 } // as last charged, and as of now
	now        int64
	stepped    bool
	closed     bool // the store cannot know what was spent in the window
}

func (s *fixedWindow) at(l *limiter.Limit, now int64) {
	s.now, s.stepped = clock(l, now, s.kept.start)
	s.seen.start, s.seen.count = s.now-s.now%l.Window.Microseconds(), s.kept.count
	if s.kept.start < s.seen.start {
		s.seen.count = 0
	}
	s.closed = false
}

// most exceeds every limit, so a count this large admits nothing.
const most = 1 << 52

// open closes a region's part of a window that began before that time.
func (s *fixedWindow) open(from int64) {
	if s.closed = s.kept.start < s.seen.start && s.seen.start < from; s.closed {
		s.seen.count = most // the part may still grow
	}
}

func (s *fixedWindow) settle() {
	if s.stepped {
		s.kept = s.seen
	}
}

func (s *fixedWindow) fits(l *limiter.Limit, cost, n int64) int64 {
	return howMany(l, l.Limit-s.seen.count, cost, n)
}

func (s *fixedWindow) charge(l *limiter.Limit, units int64, _ uint64, _ bool) {
	if s.seen.count = min(s.seen.count+units, most); l.Overdraft {
		s.seen.count = max(0, s.seen.count)
	}
	s.kept = s.seen
}

func (s *fixedWindow) answer(l *limiter.Limit, cost int64) (remaining, retry, reset int64) {
	left := s.seen.start + l.Window.Microseconds() - s.now
	if s.seen.count+max(cost, 0) > l.Limit {
		retry = left
	}
	if s.seen.count != 0 { // less than 0 if this region received rights
		reset = left
	}
	return max(0, l.Limit-s.seen.count), retry, reset
}

func (s *fixedWindow) refund(l *limiter.Limit, units, takenAt int64, _ uint64) {
	// Only rights that a region's part received leave less than nothing. A part whose count is
	// lost must not get a new one, which would open its window.
	part := l.Whole != nil && s.kept.start == s.seen.start
	if s.seen.start != takenAt-takenAt%l.Window.Microseconds() || s.seen.count <= 0 && !part {
		return
	}
	if s.seen.count -= units; l.Whole == nil {
		s.seen.count = max(0, s.seen.count)
	}
	s.kept = s.seen
}
