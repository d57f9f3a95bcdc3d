package proxy

import (
	"sync"
	"sync/atomic"
	"time"
)

// maxRestDoublings bounds the growth of a rest to 16 times the first.
const maxRestDoublings = 4

// health is what an upstream's own traffic and its checks say about it. Times count from
// the pool's epoch.
type health struct {
	down  atomic.Bool  // its checks failed
	until atomic.Int64 // 0: healthy; else when the rest ends
	fails atomic.Int32 // consecutive

	mu    sync.Mutex // guards rests, and until while a failure is recorded
	rests int        // consecutive
}

func (h *health) resting(now time.Duration) bool {
	return time.Duration(h.until.Load()) > now
}

// claim reports whether the caller is to make the trial that follows a rest. A claim
// excludes others for a second only, so a trial that never reports (because its client
// broke first) does not block for long.
func (h *health) claim(now time.Duration) bool {
	until := h.until.Load()
	return until != 0 && time.Duration(until) <= now &&
		h.until.CompareAndSwap(until, int64(now+time.Second))
}

func (h *health) succeed() {
	if h.fails.Load() == 0 && h.until.Load() == 0 {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.fails.Store(0)
	h.until.Store(0)
	h.rests = 0
}

// fail records a connect failure or a timeout. The many requests in flight when an
// upstream died count as one reason to rest: only a trial lengthens a rest that has
// begun.
func (h *health) fail(now time.Duration, trial bool, after int, rest time.Duration) {
	if int(h.fails.Add(1)) < after && !trial {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.resting(now) && !trial {
		return
	}
	h.until.Store(int64(now + rest<<min(h.rests, maxRestDoublings)))
	h.rests++
}
