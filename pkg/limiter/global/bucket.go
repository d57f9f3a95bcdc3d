package global

import "github.com/weir-edge/weir/pkg/limiter"

func isBucket(l *limiter.Limit) bool { return l.Algorithm == limiter.TokenBucket }

// scale is how finely a region's units are counted. A bucket refills by its share each
// microsecond, in parts of a unit of which the window has as many as microseconds: so no
// share loses anything to rounding.
func scale(l *limiter.Limit) int64 {
	if isBucket(l) {
		return l.Window.Microseconds()
	}
	return 1
}

// flow is the share by which a bucket refills now. In the beginning of an epoch, clocks of
// other regions may be in the one before: a region that holds more in one of the two epochs
// does not refill by it until all clocks agree.
func (r *Rights) flow(e *right) int64 {
	if r.turning(e) {
		return min(e.share, e.before)
	}
	return e.share
}

// turning reports whether a bucket's epoch has begun here, and may not have elsewhere. Its
// rights do not move then.
func (r *Rights) turning(e *right) bool {
	return isBucket(e.limit) && r.wall < e.epoch+2*r.config.Skew.Microseconds()
}

// fill begins a bucket's epoch with what was left of the one before. A bucket that nobody
// used there was full, if all that happened then is known.
func (r *Rights) fill(e *right) {
	earlier := part{e.key, e.epoch - r.epochLength(e.limit)}
	e.at = max(e.epoch, r.lostAt)
	last := r.entries[earlier]
	if last != nil && last.active {
		wall := r.wall
		r.wall = max(e.epoch, last.at)
		r.refill(last)
		r.wall = wall
		e.before, e.avail = last.share, last.avail
	} else if last == nil && r.complete(earlier.epoch) && r.terms.owns(earlier.epoch) {
		e.before = Part(e.limit, e.key, r.config.Self, r.config.Regions)
	}
	if last == nil && earlier.epoch > r.lostAt {
		e.avail = part64(e.limit.Capacity()*scale(e.limit), e.before, e.limit.Limit)
	}
	e.avail = min(e.avail, part64(e.limit.Capacity()*scale(e.limit), min(e.base, e.before), e.limit.Limit))
}

// refill adds what has flowed in since the last time.
func (r *Rights) refill(e *right) {
	turned := e.epoch + 2*r.config.Skew.Microseconds()
	if wall := r.wall; e.at < turned && wall > turned { // first by the lower share
		r.wall = turned - 1
		r.refill(e)
		r.wall = wall
	}
	if e.epoch <= r.lostAt+r.config.Skew.Microseconds() { // its share may have seemed larger
		if e.at = max(e.at, r.completeAt); r.completeAt == 0 {
			e.at = max(e.at, r.wall)
		}
	}
	passed, flow, full := r.wall-e.at, r.flow(e), r.capacity(e)
	if passed <= 0 {
		return
	}
	e.at = r.wall
	if flow > 0 && passed > (full-e.avail)/flow {
		e.avail = max(e.avail, full)
	} else {
		e.avail += flow * passed
	}
	e.avail = min(e.avail, full)
}
