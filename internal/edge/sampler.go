package edge

import (
	"sync/atomic"
	"time"
)

// sampler lets one event per second into a log and counts the others.
type sampler struct {
	next    atomic.Int64 // Unix nanoseconds
	skipped atomic.Int64
}

const sampleEvery = time.Second

// sample reports whether to log this event, and how many were skipped since the last one.
func (s *sampler) sample(now time.Time) (skipped int64, log bool) {
	t, next := now.UnixNano(), s.next.Load()
	// A time further ahead dates from before the clock was set back.
	if ahead := next - t; ahead > 0 && ahead <= int64(sampleEvery) || !s.next.CompareAndSwap(next, t+int64(sampleEvery)) {
		s.skipped.Add(1)
		return 0, false
	}
	return s.skipped.Swap(0), true
}
