package shedder

import "time"

// A law turns what was seen of one interval into the next state. Laws are pure: the
// same state and reading give the same answer, so that a law can be tried in virtual
// time, and beside another one.

// Reading is what a law sees of one interval.
type Reading struct {
	Utilization float64             // 0 to 1, of the signal that is highest
	Demand      [MaxClasses]float64 // requests a second that users want, by class
	Served      float64             // requests a second that came to an end
}

// State is what a law remembers. The zero value is the state of rest.
type State struct {
	// Level is what to shed: 0 nothing, 1 the last class, 2 the last two, and of the
	// class between, a share. At most the number of classes less one.
	Level float64
	// Integral is how far the patience is used up. For LawPI 1 is all of it. For the
	// integrators it is counted in all that can be shed, and what is beyond the patience
	// is shed.
	Integral float64
	// Rate is how many requests a second LawPI takes the site to be good for; 0 while
	// it lets in whatever comes.
	Rate float64
	// Mean is the utilization of the last second or so, while LawPI regulates.
	Mean float64
}

// Law returns the state that follows s after dt.
type Law func(s State, dt time.Duration, r *Reading, settings *Settings) State

var laws = map[string]Law{LawPI: pi, LawIntegrator: integrator, LawCap: none}

// law returns the law that the settings ask for.
func (s *Settings) law() Law {
	if s.Custom != nil {
		return s.Custom
	}
	return laws[s.Law]
}

const (
	// haste: with demand twice what is served, patience ends in about a third of a
	// second instead of 28 s.
	haste = 100
	// hesitation is the least that patience takes, in seconds: a process that was held up
	// for a moment has a queue and no answers, too, and is over it before.
	hesitation = 0.3
	// tolerance is how far demand, or a rate, may be from what is served by chance.
	tolerance = 1.1
	// gain is how much of the rate gives way to a utilization that is off by 1.
	gain = 0.04
	// correction is how much of the rate's own estimate is given up in a second for a
	// utilization that is off by 1, by the cube of what it is off: what chance moves is
	// left alone, and what is far off comes back soon (error-squared control of a level
	// goes the same way: Shinskey, Process Control Systems).
	correction = 0.3
	// regrowth is how much a rate grows in a second that leaves the site idle, as one
	// does that was learned while the site hung.
	regrowth = 3
)

// pi lets in what is served, and a little less or more to hold utilization at Target.
//
// Utilization ends at 1, and so cannot tell twice too much from ten times; demand
// against what is served can. It shortens the patience before shedding begins, and
// says how much to shed at once. From then on the rate that is let in is held by
// proportional-integral control (Åström and Murray, Feedback Systems, ch. 11): steering
// the rate, not the share that is shed, keeps the gain of the loop the same at any
// demand. When all of the demand fits in the rate nothing is shed, whatever the
// utilization: there is no dead band to get stuck in.
func pi(s State, dt time.Duration, r *Reading, settings *Settings) State {
	u, demand := r.Utilization, r.total()
	if s.Rate == 0 {
		pace := dt.Seconds() / settings.Patience.Seconds()
		if u < settings.Start {
			return State{Integral: max(0, s.Integral-pace*haste)}
		}
		s.Integral += min(dt.Seconds()/hesitation, pace*(1+haste*max(0, demand/max(r.Served, 1)-tolerance)))
		if s.Integral < 1 {
			return State{Integral: s.Integral}
		}
		s = State{Integral: 1, Rate: r.Served, Mean: u}
	}
	off := u - settings.Target
	s.Rate *= 1 - correction*off*off*off*dt.Seconds()
	s.Mean += (u - s.Mean) * min(1, dt.Seconds())
	if idle := 1 - 2*s.Mean/settings.Target; idle > 0 {
		s.Rate *= 1 + regrowth*idle*dt.Seconds()
	}
	if u >= 1 {
		s.Rate = min(s.Rate, r.Served*tolerance) // it is good for no more than it does
	} else if off < 0 {
		s.Rate = max(s.Rate, r.Served/tolerance) // nor for less
	}
	s.Rate = max(s.Rate, 1)
	s.Level = r.levelFor(s.Rate*(1-gain*off), len(settings.Classes))
	if s.Level == 0 && off < 0 {
		return State{}
	}
	return s
}

// The published law: utilization below 0.7 is good, above 0.8 bad, and the integral of
// the error, less 28 s of patience, over the 120 s that it takes to shed everything, is
// what is shed.
const (
	goodEnd   = 0.7
	badStart  = 0.8
	toShedAll = 120.0 // seconds
)

func deadBand(u float64) float64 {
	switch {
	case u < goodEnd:
		return u/goodEnd - 1
	case u > badStart:
		return min(1, (u-badStart)/(1-badStart))
	}
	return 0
}

// integrator is the published law without its faults (docs/SHEDDING.md lists them). Demand
// beyond what is served is the depth that utilization does not show, and is added to the
// error. What is shed is restored faster than patience is. And the dead band holds nothing
// that would fit: the utilization to be expected there with nothing shed counts, if it is
// less than Start.
func integrator(s State, dt time.Duration, r *Reading, settings *Settings) State {
	e, excess := deadBand(r.Utilization), max(0, r.total()/max(r.Served, 1)-1)
	switch {
	case e > 0:
		e += min(hurry, haste*max(0, excess+1-tolerance))
	case e < 0 && s.Level > 0:
		e *= restore
	case s.Level > 0 && r.Utilization*(1+excess) < settings.Start:
		e = -1
	}
	patience := settings.Patience.Seconds() / toShedAll
	s.Integral = min(1+patience, max(0, s.Integral+e/toShedAll*dt.Seconds()))
	s.Level = max(0, s.Integral-patience) * float64(len(settings.Classes)-1)
	return s
}

const (
	hurry   = 30 // at most so much is added to the error: 4 s to shed everything
	restore = 12 // 10 s to restore everything
)

// none leaves everything to the caps.
func none(State, time.Duration, *Reading, *Settings) State { return State{} }

func (r *Reading) total() (sum float64) {
	for _, d := range r.Demand {
		sum += d
	}
	return sum
}

// levelFor is the level that lets in so many requests a second of the demand.
func (r *Reading) levelFor(rate float64, classes int) (level float64) {
	excess := r.total() - rate
	for i := classes - 1; i > 0 && excess > 0; i-- {
		if excess < r.Demand[i] {
			return level + excess/r.Demand[i]
		}
		excess -= r.Demand[i]
		level++
	}
	return level
}

// share is how much of a class a level sheds.
func share(level float64, class, classes int) float64 {
	return min(1, max(0, level-float64(classes-1-class)))
}
