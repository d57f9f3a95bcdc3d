package shedder

import (
	"math"
	"time"
)

// Estimate is what a node has learned about an origin from the traffic it sends there: how
// long a request takes without a queue, and how many requests per second the origin answers
// for this node while there is one. Their product is what is in flight at full rate
// (Little's law); with headroom for chance it is the knee of SignalInFlight.
//
// Estimates that compare round trips with the smallest one (TCP Vegas, the gradient
// limiters) drift: a queue that never empties becomes their smallest round trip, and
// constant timeouts look like calm. This one differs in four points. A base may rise above
// observed values only while the origin is far below full rate, or in a probe, which first
// drains what is in flight below what the base explains: a base raised by a queue falls
// with each probe. Requests without an answer count as in flight and never as answered. The
// headroom is added, not multiplied, so that a wrong base is not amplified. And the rate
// may fall only a little until a probe has shown that requests really queue, so that slower
// work does not cause a downward spiral.
type Estimate struct {
	// Base is how long a request takes in seconds without a queue; 0 while unknown.
	Base float64
	// Rate is how many requests per second the origin answers for this node while there is
	// a queue; until Found, the most that it has answered.
	Rate  float64
	Found bool // a queue has been seen
	// Probes counts those that ended with a new base; Undecided, those that drained nothing
	// or got too few answers.
	Probes, Undecided uint64

	inFlight, answered float64 // means over originMemory
	seconds            float64 // duration that the means cover
	queued             float64 // seconds since round trips began to show a queue; 0: none
	probed             bool    // a probe ran since then
	floor              float64 // lower bound of Rate until the next probe; 0: none
	flooded            int     // consecutive observations of a queue long enough to count before any probe
	proven             bool    // a probe has confirmed Found
	again              bool    // the last probe changed much, so another should follow
	age                float64 // seconds since Base was learned, at most searchFor
	search             search
	probe              probe
}

// search is how a newcomer finds out whether its first base includes other nodes' queue: it
// repeatedly lowers what it has in flight, at the moments when the others probe.
type search struct {
	tries int
	fell  bool // a try has lowered the base
	over  bool
}

// probe drains what is in flight and then measures a round trip.
type probe struct {
	goal    float64 // requests in flight; 0: no probe is running
	search  bool
	elapsed float64 // seconds
	drained bool    // the goal was reached
	settle  float64 // seconds until it can measure; after that, in seconds and requests:
	seconds float64
	area    float64 // in flight, multiplied by seconds
	count   float64 // answers
}

// Observation is what an Estimate learns from: one interval of a node's requests to an
// origin.
type Observation struct {
	Now      time.Time
	For      time.Duration // time since the previous observation
	InFlight float64       // sent and not answered, at Now
	Answered float64       // during For
	// MayProbe says that the value of Limit is enforced.
	MayProbe bool
}

const (
	originMemory = 1.0  // seconds
	rateMemory   = 2.0  // seconds in which Rate follows while there is a queue
	baseMemory   = 10.0 // seconds in which Base follows round trips
	// fewAnswers per second are too few to learn from.
	fewAnswers = 5
	// headroomSeconds, in seconds, is about how long the laws need to correct chance fluctuations.
	// The headroom is the square root of headroomSeconds times the rate.
	headroomSeconds = 1.3
	// A queue begins at queueFrom of the headroom, and ends below queueUntil of it.
	queueFrom, queueUntil = 0.75, 0.25
	// suddenQueue is the queue, in multiples of the headroom, that counts before the first
	// probe.
	suddenQueue = 2.0
	// noQueueBelow is the fraction of the full rate, and of the knee, below which no queue
	// persists.
	noQueueBelow = 0.5
	// probeDepth is what a probe leaves in flight, as a fraction of what Base explains.
	probeDepth = 0.8
	// minRateUnproven is the fraction of itself to which Rate may fall until the next probe.
	minRateUnproven = 0.7
	// probeAfter is how long round trips show a queue before the first probe, in seconds.
	probeAfter = 1.0
	// Probes begin at multiples of probeSlot, and routine ones at every probeTurn-th. They
	// follow the clock because nodes can empty a shared queue only by draining together.
	probeSlot = 2 * time.Second
	probeTurn = 30
	// A probe drains for a round trip plus drainAtLeast seconds, but at most drainLongest.
	// It measures for probeSeconds or one round trip, whichever is longer, and then
	// continues until it has probeAnswers or probeLongest has passed.
	drainAtLeast, drainLongest = 0.1, 5.0
	probeSeconds, probeLongest = 0.3, 2.0
	probeAnswers               = 20
	// A newcomer whose first round trips hold more in flight than searchFrom of the
	// headroom searches, within searchFor seconds. Each try leaves searchDepth of that in
	// flight and takes searchAnswers; only a fall of more than searchSurely standard
	// deviations counts. If the first try lowers nothing, there is no other node's queue;
	// by searchTries the others have probed.
	searchFrom, searchFor      = 0.75, 10.0
	searchDepth                = 0.25
	searchTries, searchAnswers = 4, 100
	searchSurely               = 3.0
	// lag is the factor by which a round trip may exceed the mean of the second before.
	lag = 1.25
	// muchChanged is the relative change of the knee by a probe that triggers another.
	muchChanged = 0.1
)

// headroom returns how many requests above those in flight at full rate chance explains.
func headroom(rate float64) float64 { return math.Sqrt(headroomSeconds * rate) }

// High returns the knee that makes the target utilization equal to what is in flight at
// full rate plus headroom; 0 while it is unknown.
func (e *Estimate) High(target float64) float64 {
	if !e.Found {
		return 0
	}
	return (e.Rate*e.Base + headroom(e.Rate)) / target
}

// Queued reports whether round trips show a queue.
func (e *Estimate) Queued() bool { return e.queued > 0 }

// RoundTrip returns the mean round trip in seconds, by Little's law; 0 while unknown.
func (e *Estimate) RoundTrip() float64 {
	if e.answered < fewAnswers {
		return 0
	}
	return e.inFlight / e.answered
}

// Limit returns how many requests may be in flight while a probe is running, and whether
// one is.
func (e *Estimate) Limit() (requests int64, probing bool) {
	return int64(math.Round(e.probe.goal)), e.probe.goal > 0
}

// After returns what is known after an observation: Base and Rate, which make the knee (High).
func (e Estimate) After(o *Observation) Estimate {
	dt := o.For.Seconds()
	if dt <= 0 {
		return e
	}
	if e.probe.goal > 0 {
		if o.MayProbe {
			return e.measure(o, dt)
		}
		e.probe = probe{}
	}
	e.seconds = min(e.seconds+dt, 2*originMemory)
	follow := max(dt/e.seconds, -math.Expm1(-dt/originMemory)) // a plain mean at first
	e.inFlight += (o.InFlight - e.inFlight) * follow
	e.answered += (o.Answered/dt - e.answered) * follow
	switch {
	case e.answered < fewAnswers && e.inFlight < fewAnswers:
		e.queued, e.floor, e.probed = 0, 0, false
		return e
	case e.answered < fewAnswers:
		return e // the origin hangs, which says nothing about its normal work
	case o.InFlight < noQueueBelow*e.inFlight && o.Answered/dt < noQueueBelow*e.answered:
		return e // the load has gone, and the means are outdated
	}
	trip := e.inFlight / e.answered
	if e.Base == 0 {
		if e.seconds >= originMemory {
			e.Base, e.Rate = trip, e.answered
		}
		return e
	}
	e.age = min(e.age+dt, searchFor)
	if trip < e.Base || e.answered < noQueueBelow*e.Rate && e.inFlight < noQueueBelow*(e.Rate*e.Base+headroom(e.Rate)) {
		e.Base += (trip - e.Base) * -math.Expm1(-dt/baseMemory)
	}
	e.Rate = max(e.Rate, e.answered)
	// A stall also has a queue, but no answers.
	if o.InFlight < e.answered*e.Base+suddenQueue*headroom(e.answered) || o.Answered < e.answered*dt {
		e.flooded = 0
	} else if e.flooded++; e.flooded > 1 && !e.Found {
		e.Found, e.Rate = true, max(e.Rate, o.Answered/dt) // unless a probe contradicts
	}
	wait := headroom(e.answered) / e.answered
	switch {
	case trip >= e.Base+queueFrom*wait:
		e.queued += dt
	case e.queued > 0 && trip < e.Base+queueUntil*wait:
		e.queued, e.floor, e.probed = 0, 0, false
	case e.queued > 0:
		e.queued += dt
	}
	if e.searches(o) {
		e.probe = probe{goal: max(1, searchDepth*e.inFlight), search: true}
		return e
	}
	if e.queued == 0 {
		return e
	}
	if !o.MayProbe {
		e.Found = true
	}
	if e.Found {
		if e.floor == 0 {
			e.floor = minRateUnproven * e.Rate
		}
		next := e.Rate + (e.answered-e.Rate)*-math.Expm1(-dt/rateMemory)
		if o.MayProbe {
			next = max(next, min(e.floor, e.Rate))
		}
		e.Rate = next
	}
	if o.MayProbe && e.due(o) {
		e.probe = probe{goal: max(1, probeDepth*e.answered*e.Base)}
	}
	return e
}

// due reports whether a probe should begin: the first soon after a queue has shown, others
// when Rate may fall no further or the last one changed much, and a routine one at every
// turn.
func (e *Estimate) due(o *Observation) bool {
	return o.slot() && e.queued >= probeAfter &&
		(!e.probed || e.again || e.Rate <= e.floor || o.Now.UnixNano()/int64(probeSlot)%probeTurn == 0)
}

// searches reports whether a newcomer's next try should begin.
func (e *Estimate) searches(o *Observation) bool {
	return o.MayProbe && o.slot() && !e.search.over && e.age < searchFor && e.inFlight >= searchFrom*headroom(e.answered)
}

// slot reports whether the observation is the first of its slot.
func (o *Observation) slot() bool {
	return o.Now.UnixNano()/int64(probeSlot) != o.Now.Add(-o.For).UnixNano()/int64(probeSlot)
}

// measure continues a probe, at whose end it corrects the knee's Base and Rate. What is in flight
// during it does not measure demand, so the means stay.
func (e Estimate) measure(o *Observation, dt float64) Estimate {
	p := &e.probe
	p.elapsed += dt
	e.age = min(e.age+dt, searchFor)
	trip := e.inFlight / e.answered
	if !p.drained {
		// After a round trip, everything that was in flight before is answered, and a large
		// first class keeps the rest from falling further.
		p.drained = o.InFlight <= p.goal+1 || p.elapsed >= min(trip+drainAtLeast, drainLongest)
		p.settle = min(e.Base, probeLongest)
		return e
	}
	if p.settle >= dt/2 { // answers still belong to requests sent before
		p.settle -= dt
		return e
	}
	p.seconds, p.area, p.count = p.seconds+dt, p.area+o.InFlight*dt, p.count+o.Answered
	answers := float64(probeAnswers)
	if p.search && p.area < (1-muchChanged)*e.Base*p.count { // otherwise nothing falls, and the try ends early
		answers = searchAnswers
	}
	if p.seconds < min(max(probeSeconds, trip), probeLongest) || p.count < answers && p.seconds < probeLongest {
		return e
	}
	if p.count < fewAnswers || p.area/p.seconds > (1+probeDepth)/2*e.inFlight {
		return e.undecided()
	}
	// Draining does not lengthen a round trip, and the mean lags: anything beyond this
	// stalled.
	base := min(lag*trip, p.area/p.count)
	if p.search {
		fell := base < (1-searchSurely/math.Sqrt(p.count))*e.Base
		if e.search.note(fell); !fell {
			e.probe = probe{} // the work takes that long, or other nodes sustain the queue
			return e
		}
	}
	before := e.Rate*e.Base + headroom(e.Rate)
	wait := headroom(e.answered) / e.answered
	e.probe, e.probed, e.Base = probe{}, true, base
	e.Probes++
	if trip < base+queueUntil*wait { // the work is slower; no requests wait
		e.queued, e.floor, e.probed, e.again, e.Found = 0, 0, false, false, e.proven
		return e
	}
	e.Found, e.proven, e.Rate, e.floor = true, true, e.answered, minRateUnproven*e.answered
	e.again = math.Abs(e.Rate*e.Base+headroom(e.Rate)-before) > muchChanged*before
	return e
}

// note records the result of a try.
func (s *search) note(fell bool) {
	s.tries, s.fell = s.tries+1, s.fell || fell
	s.over = !s.fell || s.tries == searchTries
}

// undecided ends a probe that learned nothing. The next one waits for its turn.
func (e Estimate) undecided() Estimate {
	e.search.over = e.search.over || e.probe.search
	e.probe, e.probed, e.again = probe{}, true, false
	e.Undecided++
	return e
}
