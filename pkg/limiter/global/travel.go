package global

import (
	"time"

	"github.com/weir-edge/weir/pkg/limiter"
)

// shareOf bounds what regions keep to themselves: over all regions, at most one part in
// shareOf of the limit.
const shareOf = 20

// Share returns how many units of a key a region may count without telling the others. If
// that is less than one unit, it reports every key.
func Share(l *limiter.Limit, regions int) int64 {
	n := whole(l) / shareOf / int64(regions)
	if l.Algorithm != limiter.FixedWindow {
		n /= 2 // the previous window counts too, and its share may be missing as well
	}
	return n
}

// whole returns how much of a key can be used at once.
func whole(l *limiter.Limit) int64 {
	if l.Algorithm.IsBucket() {
		return l.Capacity()
	}
	return l.Limit
}

// Width returns the length of the windows in which a limit's counters travel, in
// microseconds. For a bucket it is the time the bucket takes to drain, but at least ten
// seconds. Counters that arrive more than a window and MaxSkew after the end of their
// window are dropped: a region that was disconnected for longer owes nothing.
func Width(l *limiter.Limit) int64 {
	if l.Algorithm.IsBucket() {
		drain, unit := l.Rate()
		full := (l.Capacity()*unit + drain - 1) / drain
		return min(max(MaxSkew.Microseconds(), (full+999)/1000*1000), limiter.MaxWindow.Microseconds())
	}
	return l.Window.Microseconds()
}

// travels reports whether the other regions must learn of a key now. The less of the limit
// is left and the faster the key grows, the sooner they must: the untold count, and what it
// will be by the next message, must stay below the share, and small compared to what is
// left.
func (c *Counts) travels(l *limiter.Limit, e *entry, now time.Duration) bool {
	if e.sent.Incarnation != e.own.Incarnation && e.sent.Incarnation != 0 {
		return true
	}
	untold := e.own.Count - e.sent.Count
	left := whole(l) - e.own.Count - e.sum
	room := max(0, min(Share(l, c.config.Regions), left/int64(8*c.config.Regions)))
	return untold > room || untold > 0 && untold+e.pace.expected(now) > room
}

// pace is how much a counter grew in the current period and in the one before.
type pace struct {
	every        time.Duration // 0 means Period
	began        time.Duration
	here, before int64
}

func (p *pace) add(units int64, now time.Duration) {
	p.roll(now)
	p.here += units
}

func (p *pace) roll(now time.Duration) {
	every := p.every
	if every == 0 {
		every = Period
	}
	switch d := now - p.began; {
	case d >= 2*every:
		p.began, p.here, p.before = now, 0, 0
	case d >= every:
		p.began, p.here, p.before = p.began+every, 0, p.here
	}
}

// expected returns how much the counter is expected to grow in a period.
func (p *pace) expected(now time.Duration) int64 {
	p.roll(now)
	return max(p.here, p.before)
}
