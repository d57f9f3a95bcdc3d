package report

import (
	"math"
	"time"

	"github.com/weir-edge/weir/pkg/limiter"
)

// entry is what this node knows of one key. Its shard's lock guards it. Times are the
// store's, in Unix microseconds, as this node estimates them; units are requests × cost.
type entry struct {
	limit *limiter.Limit
	key   string
	use   *usage

	start         int64 // of the window that the counts are for
	count, before int64 // windows: what all nodes reported in this one, and in the one before
	level         float64
	levelAt       int64 // buckets: the level, and when it had that value

	pending, late   int64 // admitted here and not reported: in this window, in the one before
	flying, flyLate int64 // the same, on its way to the store
	requested       int64 // requested here since the last report, admitted or not

	offset int64   // the store's clock minus this node's
	heard  int64   // when the store last answered; 0: never
	rate   float64 // demand on all nodes, in units per microsecond
	others float64 // what other nodes admitted at that time, in units per microsecond
	peak   float64 // the most that all nodes admitted in this window, in units per microsecond
	refuse float64 // the fraction of requests to refuse
	// This node's demand and admissions, with older intervals counting less.
	demand, passed float64
	// What other nodes admitted in that many microseconds, with older intervals counting
	// less (see expect.go).
	gained, spanned float64

	listed    bool // it is in its shard's list of changed keys
	wasUrgent bool // it was urgent since its shard's changed keys were last reported
	expires   bool // the counter of this window has its expiry
	settled   bool // no node adds to before any more
	spent     bool // nothing was left as of the last answer
	excused   bool // the count was over the limit when the limit changed
	failed    uint8
	forgets   uint32 // counts resets, so that a late answer is recognized
}

const (
	// A second failure in a row hands a key to on_store_failure.
	failedAt = 2
	// How long the fraction of requests to refuse stays valid without an answer.
	refuseFor = 3 * int64(limiter.ReportEvery/time.Microsecond)
	every     = float64(limiter.ReportEvery / time.Microsecond)
)

// roll advances the counts to the window of t and returns the time that applies: a key's
// time does not run backwards unless the clock was set back (see limiter.MaxClockBack).
func (e *entry) roll(l *limiter.Limit, t int64) int64 {
	window := l.Window.Microseconds()
	if l.Algorithm == limiter.TokenBucket {
		if t < e.levelAt && e.levelAt-t <= min(l.Window, limiter.MaxClockBack).Microseconds() {
			return e.levelAt
		}
		e.levelAt = min(e.levelAt, t)
		return t
	}
	start := t - t%window
	switch {
	case start == e.start:
		return t
	case t < e.start && e.start-t <= min(l.Window, limiter.MaxClockBack).Microseconds():
		return e.start
	case start < e.start: // the clock was set back, or the rule has longer windows now
		e.start = start
	case start == e.start+window:
		e.before, e.late, e.flyLate = e.count, e.pending, e.flying
		e.start, e.count, e.pending, e.flying = start, 0, 0, 0
	default:
		e.start, e.count, e.before = start, 0, 0
		e.pending, e.late, e.flying, e.flyLate = 0, 0, 0, 0
	}
	e.expires, e.settled, e.excused, e.spent, e.peak = false, false, false, false, 0
	return t
}

// used returns what is known to count against a window.
func (e *entry) used() (current, before int64) {
	return e.count + e.pending + e.flying, e.before + e.late + e.flyLate
}

// full returns what is known to be missing from a full bucket at t.
func (e *entry) full(l *limiter.Limit, t int64) float64 {
	return e.drained(l, t) + float64(e.pending+e.flying)
}

// drained returns the last level heard, drained up to t.
func (e *entry) drained(l *limiter.Limit, t int64) float64 {
	return max(0, e.level-perMicrosecond(l)*float64(t-e.levelAt))
}

func perMicrosecond(l *limiter.Limit) float64 {
	return float64(l.Limit) / float64(l.Window.Microseconds())
}

// whole rounds down, tolerating floating-point loss.
func whole(units float64) int64 { return int64(math.Floor(units + 1e-6)) }

// room returns how many units fit at t, which is in the window of the counts; below 0 if
// the limit is exceeded.
func (e *entry) room(l *limiter.Limit, t int64) int64 {
	switch l.Algorithm {
	case limiter.TokenBucket:
		return whole(float64(l.Burst) - e.full(l, t))
	case limiter.SlidingWindow:
		free, width := e.free(l, t)
		return floorDiv(free, width)
	}
	current, _ := e.used()
	return l.Limit - current
}

// free returns what is left of a sliding window, in requests × milliseconds.
func (e *entry) free(l *limiter.Limit, t int64) (free, width int64) {
	width = l.Window.Milliseconds()
	current, before := e.used()
	return l.Limit*width - before*max(0, width-(t-e.start)/1000) - current*width, width
}

// wait returns the microseconds until a cost that does not fit passes, if nothing else is
// admitted, and until the whole limit is free.
func (e *entry) wait(l *limiter.Limit, cost, t int64) (retry, reset int64) {
	window, width := l.Window.Microseconds(), l.Window.Milliseconds()
	current, before := e.used()
	switch l.Algorithm {
	case limiter.TokenBucket:
		level, rate := e.full(l, t), perMicrosecond(l)
		return max(0, int64(math.Ceil((level+float64(cost-l.Burst))/rate-1e-6))), int64(math.Ceil(level / rate))
	case limiter.SlidingWindow:
		free, _ := e.free(l, t)
		if cost = min(cost, l.Limit); free < cost*width {
			if spare := l.Limit - cost; current <= spare { // until the previous window has faded enough
				retry = e.start + ceilDiv((before-(spare-current))*width, before)*1000 - t
			} else { // until this window has become the previous one and faded
				retry = e.start + window + ceilDiv((current-spare)*width, current)*1000 - t
			}
		}
		switch {
		case current > 0:
			reset = e.start + 2*window - t
		case before > 0:
			reset = e.start + window - t
		}
		return retry, reset
	}
	left := e.start + window - t
	if current+cost > l.Limit {
		retry = left
	}
	if current > 0 {
		reset = left
	}
	return retry, reset
}

func ceilDiv(a, b int64) int64 { return (a + b - 1) / b }

func floorDiv(a, b int64) int64 {
	if a < 0 {
		return -ceilDiv(-a, b)
	}
	return a / b
}

// admits decides a request at t; draw is a random number below 1.
func (e *entry) admits(l *limiter.Limit, cost, t int64, draw float64) bool {
	if cost == 0 {
		return true
	}
	if e.left(l, t) < cost {
		return false
	}
	return e.refuse == 0 || t-e.heard > refuseFor || draw >= e.refuse
}

// updateRefuseShare computes the fraction of requests to refuse so that all nodes together admit about
// what remains until they hear of each other again. grown is how much the count grew in the
// time dt since the last answer, own is how much of that this node reported, and requested
// is the demand it saw.
//
//	refuse = 1 - (remaining - unseen) / (rate × time until the next answer)
//
// unseen is what other nodes have admitted and not reported: half an interval's worth on
// average. A node that alone uses a key refuses nothing early: it knows everything that counts.
func (e *entry) updateRefuseShare(l *limiter.Limit, grown, own, requested int64, dt, trip float64) {
	if grown < min(own, 0) { // reset on another node, where the earlier demand ended
		e.rate, e.others, e.demand, e.passed = 0, 0, 0, 0
		e.gained, e.spanned = 0, 0
	}
	e.observeOthers(l, max(0, grown-own), dt)
	dt = max(dt, every/2)
	admitted, others := float64(max(0, grown))/dt, float64(max(0, grown-own))/dt
	e.peak = max(e.peak, admitted)
	if others > 0 || own > 0 { // otherwise the demand is unknown
		e.others = max(others, 0.7*e.others)
	}
	e.demand, e.passed = 0.8*e.demand+float64(requested), 0.8*e.passed+float64(max(0, own))
	if own > 0 || requested == 0 {
		if e.demand > e.passed && e.passed > 0 { // other nodes refuse about the same fraction
			admitted *= e.demand / e.passed
		}
		e.rate = max(admitted, (admitted+e.rate)/2)
	}
	horizon := every + trip
	expected := e.rate * horizon
	remaining := float64(e.room(l, e.heard)) - others*every/2
	e.refuse = 0
	if e.others*horizon >= 0.5 && remaining < expected {
		e.refuse = 1 - max(0, remaining)/expected
	}
}

// over returns by what fraction of the limit, or of a bucket's burst, all nodes exceeded it
// as of the last answer.
func (e *entry) over(l *limiter.Limit) float64 {
	switch l.Algorithm {
	case limiter.TokenBucket:
		return max(0, e.level/float64(l.Burst)-1)
	case limiter.SlidingWindow:
		width := l.Window.Milliseconds()
		faded := float64(e.before) * float64(max(0, width-(e.heard-e.start)/1000)) / float64(width)
		return max(0, (float64(e.count)+faded)/float64(l.Limit)-1)
	}
	return max(0, float64(e.count)/float64(l.Limit)-1)
}

// matters returns until when what is known can influence a decision.
func (e *entry) matters() int64 {
	switch l := e.limit; l.Algorithm {
	case limiter.TokenBucket:
		return e.levelAt + int64(e.level/perMicrosecond(l))
	case limiter.SlidingWindow:
		return e.start + 2*l.Window.Microseconds()
	default:
		return e.start + l.Window.Microseconds()
	}
}
