package shedder

import (
	"math"
	"time"
)

// rate estimates requests a second from counts. A long memory is calm and a short one
// quick: it is calm until the two differ by more than chance explains, and then begins
// anew from the quick one.
type rate struct {
	quick, calm float64
	primed      bool
}

const (
	quickMemory = 0.3 // seconds
	calmMemory  = 8.0 // seconds
	// byChance is how many standard deviations of a Poisson process the quick estimate
	// may be off.
	byChance = 6
)

// add takes count events of dt. Each stands for weight requests.
func (r *rate) add(count, weight float64, dt time.Duration) {
	seconds := dt.Seconds()
	now := count * weight / seconds
	if !r.primed {
		*r = rate{now, now, true}
		return
	}
	r.quick += (now - r.quick) * -math.Expm1(-seconds/quickMemory)
	r.calm += (now - r.calm) * -math.Expm1(-seconds/calmMemory)
	// An exponential memory averages over twice its time constant.
	deviation := math.Sqrt(max(r.calm, r.quick/4, 1) * weight / (2 * quickMemory))
	if math.Abs(r.quick-r.calm) > byChance*deviation {
		r.calm = r.quick
	}
}

// seenRarely is the share of a class beyond which those let in are too few to tell how
// many there are.
const seenRarely = 0.9

// demand estimates what users want. Users who are shed ask again, some several times,
// and those who are let in do not: so what a class wants is what came from users who
// were let in, scaled up. Of a class that is shed almost whole only those refused are
// left to count.
type demand struct {
	classes [MaxClasses]rate
	served  rate
}

// tally is what was counted of a class in one interval.
type tally struct{ offered, passed uint64 } // passed: not shed by the level

func (d *demand) add(tallies *[MaxClasses]tally, served uint64, level float64, classes int, dt time.Duration) {
	for i := range classes {
		if p := share(level, i, classes); p < seenRarely {
			d.classes[i].add(float64(tallies[i].passed), 1/(1-p), dt)
		} else {
			d.classes[i].add(float64(tallies[i].offered), 1, dt)
		}
	}
	d.served.add(float64(served), 1, dt)
}

func (d *demand) reading(utilization float64) *Reading {
	r := &Reading{Utilization: utilization, Served: d.served.calm}
	for i := range d.classes {
		r.Demand[i] = d.classes[i].calm
	}
	return r
}
