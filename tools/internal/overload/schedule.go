package overload

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"time"
)

// Arrival is a due request, whatever the outcome of those before it.
type Arrival struct {
	Due     time.Duration // since the start of the run
	Class   int
	User    int // of Users
	Retries int // how often it may be retried
}

// Schedule returns a plan's arrivals in the order in which they are due: a Poisson
// process per class. A seed always gives the same schedule.
func Schedule(plan []Step, seed uint64) []Arrival {
	var all []Arrival
	for class := range Classes {
		rng := rand.New(rand.NewPCG(seed, uint64(class)))
		begin := time.Duration(0)
		for _, step := range plan {
			end := begin + step.For
			for due := begin; step.Load[class] > 0; {
				due += time.Duration(rng.ExpFloat64() / (step.Load[class] * Capacity) * float64(time.Second))
				if due >= end {
					break
				}
				all = append(all, Arrival{Due: due, Class: class, User: rng.IntN(Users), Retries: step.Retries})
			}
			begin = end
		}
	}
	slices.SortStableFunc(all, func(a, b Arrival) int { return cmp.Compare(a.Due, b.Due) })
	return all
}

// ServiceTimes returns how long the origin works on each request, to be used in turn
// and then again: the quantiles of the exponential distribution, in an order that
// depends on seed. Their mean is MeanService to the nanosecond, so that Capacity is
// exact.
func ServiceTimes(seed uint64) []time.Duration {
	const n = 4096
	times := make([]time.Duration, n)
	sum := 0.0
	for i := range times {
		sum -= math.Log(1 - (float64(i)+0.5)/n)
	}
	scale := float64(MeanService) * n / sum
	total := time.Duration(0)
	for i := range times {
		times[i] = time.Duration(-scale * math.Log(1-(float64(i)+0.5)/n))
		total += times[i]
	}
	times[n-1] += n*MeanService - total // compensates for rounding
	rng := rand.New(rand.NewPCG(seed, Classes))
	rng.Shuffle(n, func(i, j int) { times[i], times[j] = times[j], times[i] })
	return times
}
