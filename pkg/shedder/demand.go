package shedder

import (
	"math"
	"time"
)

// rate estimates requests per second from counts. It follows the calm (long) memory until
// the quick (short) one deviates by more than chance explains, then restarts from the
// quick one.
type rate struct {
	quick, calm float64
	primed      bool
}

const (
	quickMemory = 0.3 // seconds
	calmMemory  = 8.0 // seconds
	// byChance is how many standard deviations of a Poisson process the quick estimate may
	// deviate; byCause is the same for what is served once demand has changed.
	byChance, byCause = 6, 3
	// follows is how long, in seconds, after a change of demand byCause applies: an origin
	// may take that long to answer the additional requests.
	follows = 3.0
)

// add records count events during dt, each standing for weight requests. It reports whether
// the quick estimate deviated by more than the given standard deviations.
func (r *rate) add(count, weight float64, dt time.Duration, deviations float64) (restarted bool) {
	seconds := dt.Seconds()
	now := count * weight / seconds
	if !r.primed {
		*r = rate{now, now, true}
		return false
	}
	r.quick += (now - r.quick) * -math.Expm1(-seconds/quickMemory)
	r.calm += (now - r.calm) * -math.Expm1(-seconds/calmMemory)
	// An exponential memory averages over twice its time constant.
	deviation := math.Sqrt(max(r.calm, r.quick/4, 1) * weight / (2 * quickMemory))
	if restarted = math.Abs(r.quick-r.calm) > deviations*deviation; restarted {
		r.calm = r.quick
	}
	return restarted
}

// seenRarely is the shed share of a class above which too few requests pass to
// extrapolate from.
const seenRarely = 0.9

// demand estimates what users want. Shed users retry, some several times; admitted users do
// not. So the demand of a class is the requests of its admitted users, scaled up. Where a
// class is shed almost completely, only its refusals are left to count.
type demand struct {
	classes [MaxClasses]rate
	served  rate
	capped  rate
	wanted  rate // refused only because of a lowered limit
	recent  recentDemand
	changed float64 // seconds in which what is served may follow a change of demand
}

// tally counts one class during one interval.
type tally struct{ offered, passed, capped uint64 } // passed: not shed by the level; capped, of them: refused by a cap

func (d *demand) add(tallies *[MaxClasses]tally, served, wanted uint64, level float64, classes int, dt time.Duration) {
	capped := uint64(0)
	all, variance := float64(wanted), float64(wanted)
	for i := range classes {
		capped += tallies[i].capped
		count, weight := float64(tallies[i].offered), 1.0
		if p := share(level, i, classes); p < seenRarely {
			count, weight = float64(tallies[i].passed), 1/(1-p)
		}
		if d.classes[i].add(count, weight, dt, byChance) {
			d.changed = follows
		}
		all, variance = all+count*weight, variance+count*weight*weight
	}
	d.wanted.add(float64(wanted), 1, dt, byChance)
	d.recent.add(all, variance, dt)
	// What is served changes with demand, so less evidence is required then. Otherwise, at
	// low rates, the estimate would lag for seconds, and a law would shed as if the site
	// could not serve more.
	deviations := float64(byChance)
	if d.changed > 0 {
		deviations = byCause
	}
	d.served.add(float64(served), 1, dt, deviations)
	d.capped.add(float64(capped), 1, dt, byChance)
	d.changed = max(0, d.changed-dt.Seconds())
}

func (d *demand) reading(utilization float64) *Reading {
	r := &Reading{Utilization: utilization, Served: d.served.calm, Capped: d.capped.calm}
	for i := range d.classes {
		r.Demand[i] = d.classes[i].calm
	}
	return r
}
