package shedder

import (
	"maps"
	"slices"
	"time"
)

const (
	// rememberFull is how long a measured capacity counts after the site was last full.
	// After that the site must prove it again: an origin that was slow for a while must not
	// be spared forever.
	rememberFull = time.Hour
	// idleHeadroom is how much more than its present load an idle site that was never full
	// claims to be able to serve: utilization need not grow in proportion to the load.
	idleHeadroom = 0.3
	// nearlyIdle is the fraction of Target up to which utilization does grow with the load.
	// manyTimes bounds the conclusion for a site with almost no demand: without it, the
	// clients of a lost site would be scattered over an idle fleet.
	nearlyIdle = 1.0 / 16
	manyTimes  = 20.0
	// capacityMemory, in seconds, smooths what is served while the site is full, and
	// busyMemory how busy it is: where few requests fill a site, utilization changes with
	// each one.
	capacityMemory = 10.0
	busyMemory     = 1.0
	// atMost bounds what counts as served, relative to the mean over capacityMemory: an
	// origin that stalls and then answers all waiting requests seems to serve several times
	// what it can.
	atMost = 1.1
	// kneeMemory, in seconds, is long enough to average out chance when few, slow requests
	// are in flight.
	kneeMemory = 5.0
	// leastFull, in seconds, is how long a site must be full, and leastAnswers how many
	// answers it must give, before that says anything.
	leastFull    = 2.0
	leastAnswers = 30
	// nearlyFull is the fraction of Target below which a site counts as full only if
	// requests wait at the origin: refusals begin and end seconds after the load changes.
	nearlyFull = 0.9
)

// capacity estimates how many requests per second the site can serve.
type capacity struct {
	measured float64   // 0: it was not full for rememberFull
	answered float64   // requests per second, a mean over capacityMemory
	full     time.Time // when the site was last full
	busy     float64   // mean utilization
	rate     float64   // requests per second answered since the site became full
	seconds  float64   // how long it has been full; values beyond capacityMemory do not matter
	knee     float64   // requests per second that the site can serve, judged by a queue; 0: none for rememberFull
	queued   time.Time // when there last was a queue
	waiting  float64   // requests in it, a mean over kneeMemory
}

// next returns c after dt, during which answered requests per second were answered. A site
// is full while it refuses requests and is busy: then what it serves is what it can serve.
// Earlier traffic says nothing about that, so the mean begins when the site becomes full.
func (c capacity) next(now time.Time, dt time.Duration, answered float64, s *State, r *Reading, settings *Settings, e *Estimate) capacity {
	c.answered += (answered - c.answered) * min(1, dt.Seconds()/capacityMemory)
	c = c.nextKnee(now, dt, r, e)
	c.busy += (r.Utilization - c.busy) * min(1, dt.Seconds()/busyMemory)
	refuses := s.Level > 0 || r.Capped > negligibleCapped*r.total()
	if refuses && c.busy >= settings.Target/2 {
		if c.seconds == 0 && c.measured > 0 { // a few seconds alone do not replace an estimate
			c.rate, c.seconds = c.measured, capacityMemory
		}
		if c.busy < nearlyFull*settings.Target && e.Base > 0 && e.inFlight-e.answered*e.Base < 1 {
			return c // it refuses more than it must: no requests wait at the origin
		}
		c.seconds += dt.Seconds()
		c.rate += (answered - c.rate) * dt.Seconds() / min(c.seconds, capacityMemory)
		if c.seconds >= leastFull && c.rate*c.seconds >= leastAnswers {
			c.measured, c.full = c.rate, now
		}
		return c
	}
	c.seconds, c.rate = 0, 0
	if c.measured > 0 {
		c.measured = max(c.measured, min(r.Served, atMost*c.answered))
		if now.Sub(c.full) >= rememberFull {
			c.measured = 0
		}
	}
	return c
}

// nextKnee returns c with the knee updated: the load at which requests begin to queue, long
// before any is refused. Not every such finding is right, because slower work looks like a
// queue until a probe: so the knee bounds promises and is not a measured capacity. The
// length of the queue shows how much more can be served: in the simplest queue, as many
// requests wait as are served for each one that could be served in addition.
func (c capacity) nextKnee(now time.Time, dt time.Duration, r *Reading, e *Estimate) capacity {
	c.waiting += (e.inFlight - e.answered*e.Base - c.waiting) * min(1, dt.Seconds()/kneeMemory)
	switch {
	case e.Base > 0 && e.answered >= fewAnswers && c.waiting >= max(1, queueFrom*headroom(e.answered)):
		knee := min(e.answered, atMost*c.answered) * (1 + 1/c.waiting)
		if c.knee == 0 {
			c.knee = knee
		}
		c.knee += (knee - c.knee) * min(1, dt.Seconds()/capacityMemory)
		c.queued = now
	case c.knee > 0 && now.Sub(c.queued) >= rememberFull:
		c.knee = 0
	case c.knee > 0:
		c.knee = max(c.knee, min(r.Served, atMost*c.answered))
	}
	return c
}

// fillAs reports whether a site that was full under before is also full under s: only then
// does what it served show what it can serve now.
func (s *Settings) fillAs(before *Settings) bool {
	return s.Target == before.Target && s.AutoFrom == before.AutoFrom &&
		maps.Equal(s.Signals, before.Signals) && slices.Equal(s.Classes, before.Classes)
}

// atLeast returns what a site that was not full can serve at least: what it promises, but
// no more than its knee.
func (c *capacity) atLeast(r *Reading, target float64) float64 {
	if p := estimateCapacity(r, target); c.knee == 0 || p < c.knee {
		return p
	}
	return c.knee
}

// estimateCapacity returns what a site that was not full can serve at least.
func estimateCapacity(r *Reading, target float64) float64 {
	times := 1 + idleHeadroom*max(0, 1-r.Utilization/target)
	if idle := target * nearlyIdle; r.Utilization < idle {
		times = max(times, min(manyTimes, idle/r.Utilization))
	}
	return r.Served * times
}
