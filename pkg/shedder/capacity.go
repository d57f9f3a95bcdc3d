package shedder

import (
	"maps"
	"slices"
	"time"
)

const (
	// rememberFull is how long a measured capacity counts after the site was last full. Then it
	// must show it again: an origin that was slow for a while must not be spared for ever.
	rememberFull = time.Hour
	// promised is how much more than it serves an idle site that was never full says it can
	// serve: utilization need not grow in proportion to the load.
	promised = 0.3
	// nearlyIdle is the part of Target up to which utilization does grow with the load, and
	// manyTimes bounds what follows for a site that is asked for next to nothing: without it,
	// the clients of a lost site would be scattered over a fleet that is idle.
	nearlyIdle = 1.0 / 16
	manyTimes  = 20.0
	// capacityMemory, in seconds, smooths what is served while the site is full.
	capacityMemory = 5.0
)

// capacity estimates how many requests per second the site can serve.
type capacity struct {
	measured float64   // 0: it was not full for rememberFull
	full     time.Time // when it last was
}

// next returns c after dt. A site is full while it refuses requests and is busy: then what it
// serves is what it can serve.
func (c capacity) next(now time.Time, dt time.Duration, s *State, r *Reading, settings *Settings) capacity {
	refuses := s.Level > 0 || r.Capped > rarely*r.total()
	switch {
	case refuses && r.Utilization >= settings.Target/2:
		if c.measured == 0 {
			c.measured = r.Served
		}
		c.measured += (r.Served - c.measured) * min(1, dt.Seconds()/capacityMemory)
		c.full = now
	case c.measured > 0 && now.Sub(c.full) >= rememberFull:
		c = capacity{}
	case c.measured > 0:
		c.measured = max(c.measured, r.Served)
	}
	return c
}

// fillAs reports whether a site is full under s when it was under before: only then does
// what it served tell what it can serve now.
func (s *Settings) fillAs(before *Settings) bool {
	return s.Target == before.Target && s.AutoFrom == before.AutoFrom &&
		maps.Equal(s.Signals, before.Signals) && slices.Equal(s.Classes, before.Classes)
}

// promise returns what a site that was not full can serve at least.
func promise(r *Reading, target float64) float64 {
	times := 1 + promised*max(0, 1-r.Utilization/target)
	if idle := target * nearlyIdle; r.Utilization < idle {
		times = max(times, min(manyTimes, idle/r.Utilization))
	}
	return r.Served * times
}
