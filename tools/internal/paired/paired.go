// Package paired compares contenders that take turns. A slowdown of the machine that lasts
// longer than a round affects all of them, so their ratios within a round vary much less
// than their rates.
package paired

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"
)

// Sample is one measurement of a contender.
type Sample struct {
	Rate     float64 // per second
	P50, P99 time.Duration
	Calls    float64 // to Redis, per request
}

// Contender is one of the things measured side by side.
type Contender struct {
	Name    string
	Measure func(ctx context.Context, round int) (Sample, error)
	// Every makes it take part in one round of so many; 0 means in each.
	Every int
	// Loose contenders do not prolong the measurement.
	Loose   bool
	Samples []Sample // by round; empty for those without it
}

// Length is how many rounds to measure: Least, then more until the ratio of each contender to
// the first has a standard error of at most Precision (a share of it), or Most is reached.
type Length struct {
	Least, Most int
	Precision   float64
}

// Run measures the contenders in turn, every other round in reverse order.
func Run(ctx context.Context, length Length, contenders ...*Contender) error {
	order := slices.Clone(contenders)
	for round := 0; round < length.Least || round < length.Most && !precise(length.Precision, contenders); round++ {
		for _, c := range order {
			s := Sample{}
			if c.Every == 0 || round%c.Every == 0 {
				var err error
				if s, err = c.Measure(ctx, round); err != nil {
					return fmt.Errorf("%s: %w", c.Name, err)
				}
			}
			c.Samples = append(c.Samples, s)
		}
		slices.Reverse(order)
	}
	return nil
}

func precise(precision float64, contenders []*Contender) bool {
	for _, c := range contenders[1:] {
		if ratio, err := c.Ratio(contenders[0]); !c.Loose && !(err <= precision*ratio) {
			return false
		}
	}
	return true
}

// Ratio returns the median over the rounds of the contender's rate to that of the base in
// the same round, and its standard error.
func (c *Contender) Ratio(base *Contender) (ratio, err float64) {
	return Compare(c.rates(), base.rates())
}

func (c *Contender) rates() []float64 { return c.figures(func(s Sample) float64 { return s.Rate }) }

func (c *Contender) figures(of func(Sample) float64) (all []float64) {
	for _, s := range c.Samples {
		all = append(all, of(s))
	}
	return all
}

// Compare returns the median of a/b over the rounds in which neither is 0, and its standard
// error. The error is derived from the quartiles, so a few disturbed rounds do not count; it is
// infinite for fewer than five rounds.
func Compare(a, b []float64) (ratio, err float64) {
	var ratios []float64
	for i := range a {
		if a[i] > 0 && b[i] > 0 {
			ratios = append(ratios, a[i]/b[i])
		}
	}
	if len(ratios) == 0 {
		return math.NaN(), math.Inf(1)
	}
	slices.Sort(ratios)
	n := len(ratios)
	ratio = (ratios[(n-1)/2] + ratios[n/2]) / 2
	if n < 5 {
		return ratio, math.Inf(1)
	}
	at := func(rank float64) float64 {
		low := min(max(int(math.Floor(rank)), 0), n-2)
		return ratios[low] + (rank-float64(low))*(ratios[low+1]-ratios[low])
	}
	// Of a normal distribution, the quartiles are 1.349 σ apart, and the median of n varies
	// by 1.253 σ/√n.
	quartiles := at(0.75*float64(n-1)) - at(0.25*float64(n-1))
	return ratio, 1.253 / 1.349 * quartiles / math.Sqrt(float64(n))
}

// Median returns the middle of what a contender's rounds measured.
func (c *Contender) Median(of func(Sample) float64) float64 {
	var all []float64
	for _, s := range c.Samples {
		if s.Rate > 0 {
			all = append(all, of(s))
		}
	}
	if len(all) == 0 {
		return math.NaN()
	}
	slices.Sort(all)
	return (all[(len(all)-1)/2] + all[len(all)/2]) / 2
}
