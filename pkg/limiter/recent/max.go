// Package recent keeps the largest recent value of a measurement.
package recent

import (
	"math"
	"sync/atomic"
)

// Max is the largest value seen in the last 30 to 60 seconds.
type Max struct{ half, now, before atomic.Uint64 }

const halfMinute = 30_000_000

// See records a value at a time in microseconds. Only one goroutine may call it at a time.
func (r *Max) See(v float64, at int64) {
	r.turn(at)
	if v > math.Float64frombits(r.now.Load()) {
		r.now.Store(math.Float64bits(v))
	}
}

func (r *Max) turn(at int64) {
	half := uint64(at / halfMinute)
	switch was := r.half.Load(); {
	case half == was:
		return
	case half == was+1:
		r.before.Store(r.now.Load())
	default:
		r.before.Store(0)
	}
	r.now.Store(0)
	r.half.Store(half)
}

// Value returns the largest recent value as of a time in microseconds.
func (r *Max) Value(at int64) float64 {
	half, v := uint64(at/halfMinute), 0.0
	was := r.half.Load()
	if half == was || half == was+1 {
		v = math.Float64frombits(r.now.Load())
	}
	if half == was {
		v = max(v, math.Float64frombits(r.before.Load()))
	}
	return v
}
