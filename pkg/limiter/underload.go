package limiter

import (
	"math"
	"time"

	"github.com/weir-edge/weir/pkg/field"
)

// A limit that follows load is lowered while the upstreams of a request are busy: as their
// utilization rises from From to 1, it falls to Share of its full size, in LoadSteps steps.
// All steps are built in advance, so that choosing one costs a request nothing.

// LoadSteps is the number of steps in which a limit falls to its floor.
const LoadSteps = 16

// LoadTick is how often the utilization that limits follow changes.
const LoadTick = time.Second

// FullLoad is a utilization of 1. Nodes exchange it in thousandths, so that all of them
// calculate with the same numbers.
const FullLoad = 1000

// UnderLoad describes how a limit follows load. It is immutable.
type UnderLoad struct {
	From, Share float64
	steps, gaps [LoadSteps + 1]*Limit
}

// Follow makes a valid limit follow load. It returns the faults of the lower limits, or nil.
func (l *Limit) Follow(from, share float64) field.Errors {
	u := &UnderLoad{From: from, Share: share}
	floor := FloorOf(l.Limit, share)
	u.steps[0] = l
	for n := 1; n <= LoadSteps; n++ {
		size := l.Limit - (l.Limit-floor)*int64(n)/LoadSteps
		if size == u.steps[n-1].Limit {
			u.steps[n], u.gaps[n] = u.steps[n-1], u.gaps[n-1]
			continue
		}
		u.steps[n] = l.lowered(size, u)
		u.gaps[n] = gap(l, l.Limit-size)
		if errs := u.steps[n].Validate(); errs != nil {
			return errs
		}
	}
	l.UnderLoad = u
	return nil
}

// gap returns a limit that passes the given part of l, evenly: refused clients ask again
// and again, and their demand should be known soon, not once per window.
func gap(l *Limit, size int64) *Limit {
	g := &Limit{Rule: l.Rule, Algorithm: TokenBucket, Limit: size, Window: l.Window, Burst: max(1, size/10)}
	if g.Validate() != nil { // too fine to count exactly
		g.Algorithm, g.Burst = FixedWindow, 0
	}
	return g
}

// FloorOf returns that share of a limit, rounded up.
func FloorOf(limit int64, share float64) int64 {
	return max(1, int64(math.Ceil(float64(limit)*share-1e-6)))
}

// lowered returns l with another size and a burst in proportion, rounded up.
func (l *Limit) lowered(size int64, u *UnderLoad) *Limit {
	return &Limit{
		Rule: l.Rule, Algorithm: l.Algorithm, Storage: l.Storage,
		Limit: size, Window: l.Window, Burst: (l.Burst*size + l.Limit - 1) / l.Limit,
		Leased: l.Leased, Reported: l.Reported, Shadow: l.Shadow, OnFailure: l.OnFailure, Global: l.Global,
		Shared: l.Shared, Slowest: l.Slowest, UnderLoad: u,
	}
}

// Floor returns the smallest size of l: l itself, unless it follows load.
func (l *Limit) Floor() *Limit {
	if l.UnderLoad == nil {
		return l
	}
	return l.UnderLoad.steps[LoadSteps]
}

// Full returns the limit that l is lowered from, or l itself.
func (l *Limit) Full() *Limit {
	if l.UnderLoad == nil {
		return l
	}
	return l.UnderLoad.steps[0]
}

// Step returns how many steps lower the limit is at a utilization in thousandths.
func (u *UnderLoad) Step(utilization int64) int {
	above := float64(utilization)/FullLoad - u.From
	return min(LoadSteps, max(0, int(math.Floor(above/(1-u.From)*LoadSteps+0.5))))
}

// At returns the limit at a utilization in thousandths.
func (l *Limit) At(utilization int64) *Limit {
	if l.UnderLoad == nil {
		return l
	}
	return l.UnderLoad.steps[l.UnderLoad.Step(utilization)]
}

// Gap returns, for a lowered limit, what the full one would pass in addition, and nil for a
// limit that is not lowered.
func (l *Limit) Gap() *Limit {
	if l.UnderLoad == nil {
		return nil
	}
	for n, step := range &l.UnderLoad.steps {
		if step == l {
			return l.UnderLoad.gaps[n]
		}
	}
	return nil
}

// SameUnderLoad is Same for o or any limit that it can be lowered to.
func (l *Limit) SameUnderLoad(o *Limit) bool {
	if o.UnderLoad == nil {
		return o.Equal(l)
	}
	for n, step := range &o.UnderLoad.steps {
		if (n == 0 || step != o.UnderLoad.steps[n-1]) && step.Equal(l) {
			return true
		}
	}
	return false
}
