package shedder

import "time"

// A law turns the reading of one interval into the next state. Laws are pure: the same
// state and reading give the same result, so that they can run in virtual time and
// alongside each other.

// Reading is the input of a law for one interval.
type Reading struct {
	Utilization float64             // 0 to 1, of the highest signal
	Demand      [MaxClasses]float64 // requests per second that users want, by class
	Served      float64             // requests per second that completed
	Capped      float64             // of that demand, requests per second that caps refused
}

// State is the memory of a law. The zero value is at rest.
type State struct {
	// Level is what to shed: 0 nothing, 1 the last class, 2 the last two; a fraction
	// sheds that share of the next class. It is at most the number of classes less one.
	Level float64
	// Integral is how much of the patience is used up. For LawPI, 1 is all of it. The
	// integrators count in units of everything that can be shed, and shed what exceeds
	// the patience.
	Integral float64
	// Rate is LawPI's estimate of how many requests per second the site can serve; 0
	// while it admits everything.
	Rate float64
	// Mean is the utilization over about the last second while LawPI regulates, and over
	// the last ten while it does not and caps refuse.
	Mean float64
}

// Law returns the state that follows s after dt.
type Law func(s State, dt time.Duration, r *Reading, settings *Settings) State

var laws = map[string]Law{LawPI: pi, LawIntegrator: integrator, LawCap: capOnly}

// law returns the law that the settings name.
func (s *Settings) law() Law {
	if s.Custom != nil {
		return s.Custom
	}
	return laws[s.Law]
}

const (
	// excessGain shortens patience: when demand is twice what is served, it runs out in about a
	// third of a second instead of 28 s.
	excessGain = 100
	// minPatience is the minimum patience in seconds: a process that stalls briefly also
	// has a queue and no answers, and recovers sooner than this.
	minPatience = 0.3
	// tolerance is how far demand, or a rate, may differ by chance from what is served.
	tolerance = 1.1
	// negligibleCapped is the fraction of demand up to which refusals by caps do not distort
	// utilization.
	negligibleCapped = 0.001
	// meanMemory, in seconds, is long compared with the time in which a queue fills up to a
	// cap and empties again.
	meanMemory = 10.0
	// gain is the fraction of the rate given up per 1 of utilization error.
	gain = 0.04
	// correction is the share of the estimated rate given up per second for a utilization
	// error of 1. It scales with the cube of the error, so that noise changes little and
	// large errors are corrected fast (compare error-squared level control: Shinskey,
	// Process Control Systems).
	correction = 0.3
	// capRelief is how much of the fraction that caps refuse the rate gives up per second, so
	// that the level takes over from the caps. A fraction above maxCapRelief indicates a flood,
	// which the other terms handle.
	capRelief, maxCapRelief = 0.15, 0.02
	// regrowth is the fraction by which a rate grows per second while the site is idle, for
	// instance after a hang taught it too low a rate.
	regrowth = 3
)

// pi admits what is being served, adjusted slightly to hold utilization at Target.
//
// Utilization saturates at 1, so it cannot distinguish twice too much from ten times;
// demand compared with what is served can. That excess shortens the patience before
// shedding begins, and sets how much to shed at once. From then on, proportional-integral
// control (Åström and Murray, Feedback Systems, ch. 11) sets the admitted rate.
// Controlling the rate instead of the shed share keeps the loop gain independent of
// demand. When all demand fits in the rate, nothing is shed, whatever the utilization:
// there is no dead band to get stuck in. Regulation ends when chance no longer explains
// the room that is left.
func pi(s State, dt time.Duration, r *Reading, settings *Settings) State {
	u, demand := r.Utilization, r.total()
	if s.Rate == 0 {
		pace := dt.Seconds() / settings.Patience.Seconds()
		if !s.updateBusy(dt, r, settings) {
			s.Integral = max(0, s.Integral-pace*excessGain)
			return s
		}
		s.Integral += min(dt.Seconds()/minPatience, pace*(1+excessGain*max(0, demand/max(r.Served, 1)-tolerance)))
		if s.Integral < 1 {
			return s
		}
		s = State{Integral: 1, Rate: r.Served, Mean: u}
	}
	off := u - settings.Target
	s.Rate *= 1 - (correction*off*off*off+capRelief*min(maxCapRelief, r.Capped/max(demand, 1)))*dt.Seconds()
	s.Mean += (u - s.Mean) * min(1, dt.Seconds())
	if idle := 1 - 2*s.Mean/settings.Target; idle > 0 {
		s.Rate *= 1 + regrowth*idle*dt.Seconds()
	}
	if u >= 1 {
		s.Rate = min(s.Rate, r.Served*tolerance) // it can serve no more than it does
	} else if off < 0 {
		s.Rate = max(s.Rate, r.Served/tolerance) // nor less
	}
	s.Rate = max(s.Rate, 1)
	s.Level = r.levelFor(s.Rate*(1-gain*off), len(settings.Classes))
	if s.Level == 0 && off < 0 && s.Rate > demand*tolerance {
		return State{}
	}
	return s
}

// updateBusy reports whether patience is running out: utilization is at least Start. Utilization
// does not show what caps refuse: just above capacity it swings about Target and repeatedly
// falls below Start. So while caps refuse, its mean decides.
func (s *State) updateBusy(dt time.Duration, r *Reading, settings *Settings) bool {
	if r.Capped <= negligibleCapped*r.total() {
		s.Mean = 0
		return r.Utilization >= settings.Start
	}
	if s.Mean == 0 {
		s.Mean = settings.Target
	}
	s.Mean += (r.Utilization - s.Mean) * min(1, dt.Seconds()/meanMemory)
	return s.Mean >= settings.Target
}

// Stripe's law, https://gist.github.com/ptarjan/e38f45f2dfe601419ca3af937fff574d: utilization
// below 0.7 is good, above 0.8 bad. It sheds the integral of the error, less 28 s of patience,
// divided by the 120 s that it takes to shed everything.
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

// integrator is Stripe's law with four faults corrected. As published, integer division
// turns the patience of -28/120 into -1, so shedding begins after 120 s; ten times too much is
// shed as slowly as a little too much; in the dead band it keeps shedding what it shed on
// entering; and it restores over 120 s and more. Here shedding begins after 28 s. Utilization
// does not show how deep the overload is, so demand in excess of what is served is added to
// the error: everything is shed within 4 s if necessary. The dead band gives way if the
// utilization expected without shedding is below Start. The error counts 12 times while
// something is shed: 10 s.
func integrator(s State, dt time.Duration, r *Reading, settings *Settings) State {
	e, excess := deadBand(r.Utilization), max(0, r.total()/max(r.Served, 1)-1)
	switch {
	case e > 0:
		e += min(maxExcessTerm, excessGain*max(0, excess+1-tolerance))
	case e < 0 && s.Level > 0:
		e *= restoreGain
	case s.Level > 0 && r.Utilization*(1+excess) < settings.Start:
		e = -1
	}
	patience := settings.Patience.Seconds() / toShedAll
	s.Integral = min(1+patience, max(0, s.Integral+e/toShedAll*dt.Seconds()))
	s.Level = max(0, s.Integral-patience) * float64(len(settings.Classes)-1)
	return s
}

const (
	maxExcessTerm = 30 // at most this is added to the error: 4 s to shed everything
	restoreGain   = 12 // 10 s to restore everything
)

// capOnly leaves everything to the caps.
func capOnly(State, time.Duration, *Reading, *Settings) State { return State{} }

func (r *Reading) total() (sum float64) {
	for _, d := range r.Demand {
		sum += d
	}
	return sum
}

// levelFor returns the level that admits rate requests per second of the demand.
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

// share returns how much of a class a level sheds.
func share(level float64, class, classes int) float64 {
	return min(1, max(0, level-float64(classes-1-class)))
}
