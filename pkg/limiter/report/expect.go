package report

import "github.com/weir-edge/weir/pkg/limiter"

// When many clients use many nodes, a node may receive a client's requests only every few
// seconds. If it took the count of its last answer for the present one, it would admit what
// others have admitted since. So it expects that others continued at the rate at which they
// admitted before. A request that this refuses is reported too, so the node has the count
// within one report.

// extrapolateFor bounds for how long a rate is expected to continue, as a fraction of the time
// in which it was observed. What a node expects is at most that fraction of what it
// observed, and less with each answer in which others admitted nothing.
const extrapolateFor = 0.5

// observeOthers learns at what rate others admit: they admitted that many units in the time dt before
// this answer. The last five answers or so count, and fewer once a time is long compared to
// theirs. Time in which others admitted nothing because nothing was left does not count, as
// they continue once the limit frees up.
func (e *entry) observeOthers(l *limiter.Limit, others int64, dt float64) {
	if dt > 0 && (others > 0 || !e.spent) {
		keep := 0.8 * min(1, e.spanned/dt)
		e.gained, e.spanned = keep*e.gained+float64(others), keep*e.spanned+dt
	}
	e.spent = e.room(l, e.heard) < 1
}

// left returns how many units fit at t if others continued since the last answer. It is at
// most room, and room if the answer is recent (updateRefuseShare accounts for that time), or if others
// admitted less than a unit lately.
func (e *entry) left(l *limiter.Limit, t int64) int64 {
	if e.gained < 1 || e.heard == 0 || t-e.heard <= staleAfter {
		return e.room(l, t)
	}
	rate, until := e.gained/e.spanned, min(t, e.heard+int64(extrapolateFor*e.spanned))
	switch l.Algorithm {
	case limiter.TokenBucket: // others do not fill it beyond its burst
		drain := perMicrosecond(l)
		level := min(e.level+(rate-drain)*float64(until-e.heard), max(e.level, float64(l.Burst)))
		level = max(0, max(0, level)-drain*float64(t-until))
		return whole(float64(l.Burst) - level - float64(e.pending+e.flying))
	case limiter.SlidingWindow:
		free, width := e.free(l, t)
		_, known := e.used()
		before := min(rate*float64(min(until, e.start)-max(e.heard, e.start-l.Window.Microseconds())), float64(l.Limit-known))
		return whole((float64(free)-max(0, before)*float64(max(0, width-(t-e.start)/1000)))/float64(width) - e.since(rate, until))
	}
	return whole(float64(e.room(l, t)) - e.since(rate, until))
}

// since returns what others admit at a rate in this window, after the last answer.
func (e *entry) since(rate float64, until int64) float64 {
	return rate * float64(max(0, until-max(e.heard, e.start)))
}
