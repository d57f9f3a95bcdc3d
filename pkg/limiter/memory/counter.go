package memory

import "github.com/weir-edge/weir/pkg/limiter"

// counter is the state of one key. Its methods mirror the Lua scripts' tables one to one,
// so that both stores give the same answers; they do no locking and no I/O. Times are
// Unix microseconds.
type counter interface {
	// at computes the state at now, which all other methods use. It changes nothing
	// permanently, so a peek leaves no trace.
	at(l *limiter.Limit, now int64)
	// fits returns how many of n requests of that cost pass, one after another.
	fits(l *limiter.Limit, cost, n int64) int64
	// charge adds units, up to what the limit can hold; under an Overdraft they may be negative. An
	// advance counts as spent at the
	// end of its lease, rather than now.
	charge(l *limiter.Limit, units int64, slot uint64, advance bool)
	// settle makes the state current if the clock was set back since the last charge.
	settle()
	// answer returns what remains, and the microseconds until cost passes and until
	// everything is free.
	answer(l *limiter.Limit, cost int64) (remaining, retry, reset int64)
	// refund takes back what was charged at takenAt.
	refund(l *limiter.Limit, units, takenAt int64, slot uint64)
}

func newCounter(l *limiter.Limit) counter {
	switch l.Algorithm {
	case limiter.FixedWindow:
		return &fixedWindow{}
	case limiter.SlidingWindow:
		return &slidingWindow{}
	case limiter.TokenBucket, limiter.LeakyBucket:
		return &bucket{}
	case limiter.Concurrency:
		return &concurrency{}
	}
	if l.Storage == limiter.SortedSet {
		return &rollingWindow{grain: 1}
	}
	return &rollingWindow{grain: 1000}
}

// howMany returns how many of n requests of that cost fit into free. A limit that owes refuses
// even those that cost nothing.
func howMany(l *limiter.Limit, free, cost, n int64) int64 {
	switch {
	case l.Overdraft && free < cost:
		return 0
	case cost == 0:
		return n
	case n == 1: // the usual case, without a division
		if cost <= free {
			return 1
		}
		return 0
	}
	return max(0, min(n, free/cost))
}

// clock returns the time that applies to a key last written at `at`, and whether the clock
// was set back (see limiter.MaxClockBack).
func clock(l *limiter.Limit, now, at int64) (t int64, stepped bool) {
	switch {
	case now >= at:
		return now, false
	case at-now <= min(l.Window, limiter.MaxClockBack).Microseconds():
		return at, false
	}
	return now, true
}

func ceilDiv(a, b int64) int64 { return (a + b - 1) / b }
