package logs

import (
	"log/slog"
	"sync/atomic"
	"time"
)

// Sampler lets one event per second into a log and counts the others. The zero value is ready.
type Sampler struct {
	next    atomic.Int64 // Unix nanoseconds
	skipped atomic.Int64
}

const sampleEvery = time.Second

// Sample reports whether to log this event, and how many were skipped since the last one.
func (s *Sampler) Sample(now time.Time) (skipped int64, log bool) {
	t, next := now.UnixNano(), s.next.Load()
	// A time further ahead dates from before the clock was set back.
	if ahead := next - t; ahead > 0 && ahead <= int64(sampleEvery) || !s.next.CompareAndSwap(next, t+int64(sampleEvery)) {
		s.skipped.Add(1)
		return 0, false
	}
	return s.skipped.Swap(0), true
}

// Fault logs an error that lasts once, not each time it is seen. The zero value is ready.
type Fault struct{ text string }

// Report logs err unless it was the last one; nil ends it.
func (f *Fault) Report(log *slog.Logger, what string, err error) {
	if err == nil {
		f.text = ""
		return
	}
	if text := err.Error(); text != f.text {
		f.text = text
		log.Error(what, "error", err)
	}
}
