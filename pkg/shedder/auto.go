package shedder

import (
	"math"
	"time"
)

// Estimate is what a node has learned about an origin from what it sends there: how long a
// request takes without a queue, and how many the origin answers this node while there is
// one. Their product is what is in flight at full rate (Little's law); with headroom for
// chance it is the knee of SignalInFlight.
//
// Estimates that compare round trips with the smallest one (TCP Vegas, the gradient
// limiters) drift: a queue that never empties becomes their smallest round trip, and
// constant timeouts look like calm. This one differs in four points. A base may rise above
// what was seen only while the origin is far below full rate, or in a probe, which first
// drains what is in flight to less than the base explains: a base that a queue has raised
// falls with each probe. Requests without an answer count as in flight and never as
// answered. The headroom is added, not multiplied, so that a wrong base is not amplified.
// And the rate may fall by little until a probe has shown that requests really queue, so
// that slower work does not spiral down.
type Estimate struct {
	// Base is how long a request takes in seconds without a queue; 0 while unknown.
	Base float64
	// Rate is how many requests per second the origin answers this node while there is a
	// queue; until Found, the most that it has answered.
	Rate  float64
	Found bool // a queue has been seen
	// Probes counts those that ended with a new base, Undecided those that drained nothing
	// or got too few answers.
	Probes, Undecided uint64

	inFlight, answered float64 // means over originMemory
	seconds            float64 // that the means have seen
	queued             float64 // seconds since round trips have shown a queue; 0: none
	probed             bool    // since then
	floor              float64 // of Rate until the next probe; 0: none
	flooded            int     // observations in a row of a queue that counts before any probe
	proven             bool    // a probe has shown that Found is true
	again              bool    // the last probe changed much, so another should follow
	age                float64 // seconds since Base was learned, at most searchFor
	search             search
	probe              probe
}

// search is how a newcomer finds out whether its first base is others' queue: it lowers what
// it has in flight again and again, at the moments at which the others probe.
type search struct {
	tries int
	fell  bool // a try has lowered the base
	over  bool
}

// probe drains what is in flight and measures a round trip meanwhile.
type probe struct {
	goal    float64 // requests in flight; 0: no probe is running
	search  bool
	elapsed float64 // seconds
	drained bool    // the goal was reached
	settle  float64 // seconds until it can measure; since then, in seconds and requests:
	seconds float64
	area    float64 // in flight, multiplied by seconds
	count   float64 // answers
}

// Observation is what an Estimate learns from: one interval of a node's requests to an
// origin.
type Observation struct {
	Now      time.Time
	For      time.Duration // since the observation before
	InFlight float64       // sent and not answered, at Now
	Answered float64       // during For
	// MayProbe: what an Estimate asks for in Limit is enforced.
	MayProbe bool
}

const (
	originMemory = 1.0  // seconds
	rateMemory   = 2.0  // seconds in which Rate follows while there is a queue
	baseMemory   = 10.0 // seconds in which Base follows round trips
	// fewAnswers a second are too few to learn from.
	fewAnswers = 5
	// byTurns, in seconds, is about how long the laws need to correct what comes by chance.
	// So many requests as its square root times that of the rate may be in flight in
	// addition.
	byTurns = 1.3
	// A queue is one from queueFrom of the headroom on, until it is below queueUntil of it.
	queueFrom, queueUntil = 0.75, 0.25
	// suddenly is the queue, in headrooms, that counts before the first probe.
	suddenly = 2.0
	// calm is the share of the full rate, and of the knee, below which no queue stays.
	calm = 0.5
	// probeDepth is what a probe leaves in flight, as a share of what Base explains.
	probeDepth = 0.8
	// unproven is the least share of itself to which Rate may fall until the next probe.
	unproven = 0.7
	// probeAfter is how long round trips show a queue before the first probe, in seconds.
	probeAfter = 1.0
	// Probes begin at multiples of probeSlot, and routine ones at every probeTurn-th: by
	// the clock, because only nodes that drain together empty a queue that they share.
	probeSlot = 2 * time.Second
	probeTurn = 30
	// A probe drains for a round trip and drainAtLeast seconds, but at most drainLongest. It
	// measures for probeSeconds, or a round trip if that is longer, and on for probeAnswers
	// until probeLongest.
	drainAtLeast, drainLongest = 0.1, 5.0
	probeSeconds, probeLongest = 0.3, 2.0
	probeAnswers               = 20
	// A newcomer whose first round trips hold more in flight than searchFrom of the headroom
	// searches, within searchFor seconds. Each try leaves searchDepth of that and takes
	// searchAnswers; only a fall of more than searchSurely standard deviations counts. If the
	// first lowers nothing, nobody's queue is there; after searchTries the others have probed.
	searchFrom, searchFor      = 0.75, 10.0
	searchDepth                = 0.25
	searchTries, searchAnswers = 4, 100
	searchSurely               = 3.0
	// lag is the share by which a round trip may exceed the mean of the second before.
	lag = 1.25
	// muchChanged is the change of the knee by a probe that makes another follow.
	muchChanged = 0.1
)

// headroom returns how many requests above what is in flight at full rate chance explains.
func headroom(rate float64) float64 { return math.Sqrt(byTurns * rate) }

// High returns the knee at which the target utilization is what is in flight at full rate
// with headroom; 0 while it is unknown.
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

// After returns what is known after an observation.
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
		return e // the origin hangs, which says nothing about how it works
	case o.InFlight < calm*e.inFlight && o.Answered/dt < calm*e.answered:
		return e // the load has gone, and the means are of what was
	}
	trip := e.inFlight / e.answered
	if e.Base == 0 {
		if e.seconds >= originMemory {
			e.Base, e.Rate = trip, e.answered
		}
		return e
	}
	e.age = min(e.age+dt, searchFor)
	if trip < e.Base || e.answered < calm*e.Rate && e.inFlight < calm*(e.Rate*e.Base+headroom(e.Rate)) {
		e.Base += (trip - e.Base) * -math.Expm1(-dt/baseMemory)
	}
	e.Rate = max(e.Rate, e.answered)
	// A stall has a queue, too, and no answers.
	if o.InFlight < e.answered*e.Base+suddenly*headroom(e.answered) || o.Answered < e.answered*dt {
		e.flooded = 0
	} else if e.flooded++; e.flooded > 1 && !e.Found {
		e.Found, e.Rate = true, max(e.Rate, o.Answered/dt) // if a probe does not contradict
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
			e.floor = unproven * e.Rate
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
// when Rate may fall no further or the last one changed much, and one at every turn.
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

// measure continues a probe. What is in flight then is no measure of demand, so the means
// stay.
func (e Estimate) measure(o *Observation, dt float64) Estimate {
	p := &e.probe
	p.elapsed += dt
	e.age = min(e.age+dt, searchFor)
	trip := e.inFlight / e.answered
	if !p.drained {
		// After a round trip all that was in flight before is answered, and a first class
		// that is large keeps the rest from falling further.
		p.drained = o.InFlight <= p.goal+1 || p.elapsed >= min(trip+drainAtLeast, drainLongest)
		p.settle = min(e.Base, probeLongest)
		return e
	}
	if p.settle >= dt/2 { // answers still are to what was sent before
		p.settle -= dt
		return e
	}
	p.seconds, p.area, p.count = p.seconds+dt, p.area+o.InFlight*dt, p.count+o.Answered
	answers := float64(probeAnswers)
	if p.search && p.area < (1-muchChanged)*e.Base*p.count { // else nothing falls, and it ends early
		answers = searchAnswers
	}
	if p.seconds < min(max(probeSeconds, trip), probeLongest) || p.count < answers && p.seconds < probeLongest {
		return e
	}
	if p.count < fewAnswers || p.area/p.seconds > (1+probeDepth)/2*e.inFlight {
		return e.undecided()
	}
	// To drain makes no round trip longer, and the mean lags: beyond this, something stalled.
	base := min(lag*trip, p.area/p.count)
	if p.search {
		fell := base < (1-searchSurely/math.Sqrt(p.count))*e.Base
		if e.search.note(fell); !fell {
			e.probe = probe{} // the work takes that long, or the others keep the queue up
			return e
		}
	}
	before := e.Rate*e.Base + headroom(e.Rate)
	wait := headroom(e.answered) / e.answered
	e.probe, e.probed, e.Base = probe{}, true, base
	e.Probes++
	if trip < base+queueUntil*wait { // the work is slower; nothing waits
		e.queued, e.floor, e.probed, e.again, e.Found = 0, 0, false, false, e.proven
		return e
	}
	e.Found, e.proven, e.Rate, e.floor = true, true, e.answered, unproven*e.answered
	e.again = math.Abs(e.Rate*e.Base+headroom(e.Rate)-before) > muchChanged*before
	return e
}

// note takes the result of a try.
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
