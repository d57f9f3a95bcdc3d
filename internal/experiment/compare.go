package experiment

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
)

// Level bounds the chance that Compare reports any difference where there is none.
const Level = 0.05

// shuffles is the number of random divisions of the slices; the smallest p is one of as many.
const shuffles = 1999

// Measure compares one figure of both variants.
type Measure struct {
	Name string `json:"name"`
	// Base and Tried are the rule's figure and the experiment's.
	Base  float64 `json:"base"`
	Tried float64 `json:"experiment"`
	// Known is set if both variants have the figure. The fields below need that.
	Known bool `json:"known"`
	// Low and High bound Tried - Base. All intervals hold jointly at Level (Holm).
	Low  float64 `json:"low"`
	High float64 `json:"high"`
	// P is how often chance alone produces a difference this large, corrected for the number
	// of measures (Holm).
	P       float64 `json:"p"`
	Differs bool    `json:"differs"`
}

// measures lists what to compare: for each slice a sum, and its divisor.
var measures = []struct {
	name string
	of   func(*Counts) (sum, by float64)
}{
	{"refused", func(c *Counts) (float64, float64) { return float64(c.Refused), float64(c.Checks) }},
	{"wait", func(c *Counts) (float64, float64) { return float64(c.WaitMicros) / 1e6, float64(c.Checks) }},
	{"worst_window", func(c *Counts) (float64, float64) { return float64(c.Worst), float64(min(c.Worst, 1)) }},
	{"memory", func(c *Counts) (float64, float64) { return float64(c.Bytes), float64(c.Keys) }},
	{"time", func(c *Counts) (float64, float64) { return float64(c.TookMicros) / 1e6, float64(c.Asked) }},
	{"errors", func(c *Counts) (float64, float64) { return float64(c.Errors), float64(c.Answers) }},
}

// Compare compares the first cut slices, which are in the experiment, with the others.
//
// Each measure is a ratio of sums over slices. Its p comes from a permutation test: the share
// of random choices of cut slices whose difference, divided by its standard error, is at least
// as large. The test is exact for any distribution, because without an effect all choices are
// equally likely. The intervals use the same distribution in place of Student's t, so an
// interval contains 0 exactly when the test finds no difference.
func Compare(list []Counts, cut int) []Measure {
	out := make([]Measure, len(measures))
	columns := make([]*column, len(measures))
	for i := range measures {
		columns[i] = newColumn(list, measures[i].of)
		b, t := columns[i].divide(cut)
		out[i] = Measure{Name: measures[i].name, Base: figure(list[cut:], measures[i].of), Tried: figure(list[:cut], measures[i].of), Known: b.y > 0 && t.y > 0}
	}
	order := make([]int, len(list))
	for i := range order {
		order[i] = i
	}
	random := rand.New(rand.NewPCG(1, 2)) // fixed seed: the same figures give the same answer
	chance := make([][]float64, len(measures))
	few := min(cut, len(list)-cut)
	for range shuffles {
		for k := range few {
			j := k + random.IntN(len(order)-k)
			order[k], order[j] = order[j], order[k]
		}
		for i, c := range columns {
			if out[i].Known {
				chance[i] = append(chance[i], math.Abs(c.shuffled(order[:few]).t()))
			}
		}
	}
	tests := []test{}
	for i := range out {
		if !out[i].Known {
			continue
		}
		slices.Sort(chance[i])
		b, t := columns[i].divide(cut)
		d := difference{t, b}
		tests = append(tests, test{&out[i], d, chance[i], asLarge(chance[i], math.Abs(d.t()))})
	}
	holm(tests)
	return out
}

// column is one measure by slice. Its x are the sums' residuals from the mean of all slices.
type column struct {
	parts []sums // one per slice
	all   sums
}

// figure returns a measure over the given slices together, 0 if they have none.
func figure(list []Counts, of func(*Counts) (sum, by float64)) float64 {
	var x, y float64
	for i := range list {
		sum, by := of(&list[i])
		x, y = x+sum, y+by
	}
	if y == 0 {
		return 0
	}
	return x / y
}

func newColumn(list []Counts, of func(*Counts) (sum, by float64)) *column {
	c := &column{parts: make([]sums, len(list))}
	pooled := figure(list, of)
	for i := range list {
		if sum, by := of(&list[i]); by > 0 {
			sum -= pooled * by
			c.parts[i] = sums{1, sum, by, sum * sum, sum * by, by * by}
		}
		c.all.add(&c.parts[i])
	}
	return c
}

// divide returns the sums of the slices outside the experiment and of those inside.
func (c *column) divide(cut int) (base, tried sums) {
	for i := range c.parts {
		if i < cut {
			tried.add(&c.parts[i])
		} else {
			base.add(&c.parts[i])
		}
	}
	return base, tried
}

// shuffled returns the difference between some slices and the others.
func (c *column) shuffled(some []int) difference {
	var s sums
	for _, i := range some {
		s.add(&c.parts[i])
	}
	return difference{s, c.all.without(&s)}
}

// sums holds the statistics of a set of slices.
type sums struct{ n, x, y, xx, xy, yy float64 }

func (s *sums) add(o *sums) {
	s.n, s.x, s.y, s.xx, s.xy, s.yy = s.n+o.n, s.x+o.x, s.y+o.y, s.xx+o.xx, s.xy+o.xy, s.yy+o.yy
}

func (s *sums) without(o *sums) sums {
	return sums{s.n - o.n, s.x - o.x, s.y - o.y, s.xx - o.xx, s.xy - o.xy, s.yy - o.yy}
}

func (s *sums) ratio() float64 {
	if s.y <= 0 {
		return 0
	}
	return s.x / s.y
}

// variance estimates the variance of ratio by linearization, as for any ratio of sample sums.
func (s *sums) variance() float64 {
	if s.n < 2 {
		return 0
	}
	r := s.ratio()
	return max(0, s.n/(s.n-1)*(s.xx-2*r*s.xy+r*r*s.yy)/(s.y*s.y))
}

type difference struct{ a, b sums }

func (d *difference) size() float64   { return d.a.ratio() - d.b.ratio() }
func (d *difference) spread() float64 { return math.Sqrt(d.a.variance() + d.b.variance()) }

// mostErrors caps t when the variants show no variance and any difference would be infinite.
const mostErrors = 1e9

// t returns the difference in standard errors.
func (d difference) t() float64 {
	size, by := d.size(), d.spread()
	switch {
	case math.Abs(size) < 1e-12:
		return 0
	case math.Abs(size) >= by*mostErrors:
		return math.Copysign(mostErrors, size)
	}
	return size / by
}

type test struct {
	*Measure
	difference
	chance []float64 // |t| of shuffled slices, ascending
	alone  float64   // p before correction
}

// asLarge returns the share of chance at least as large as t, counting t itself.
func asLarge(chance []float64, t float64) float64 {
	below, _ := slices.BinarySearch(chance, t*(1-1e-9))
	return float64(len(chance)-below+1) / float64(len(chance)+1)
}

// holm corrects p for the number of tests and sets each interval.
func holm(tests []test) {
	slices.SortStableFunc(tests, func(a, b test) int { return cmp.Compare(a.alone, b.alone) })
	found, p := 0, 0.0
	for i := range tests {
		t := &tests[i]
		p = max(p, min(1, t.alone*float64(len(tests)-i)))
		t.P, t.Differs = p, p <= Level
		if t.Differs {
			found++
		}
	}
	for i := range tests {
		tests[i].bound(Level / float64(len(tests)-min(i, found)))
	}
}

// bound sets the interval to the differences that a test at that level would not reject.
func (t *test) bound(level float64) {
	beyond := int(math.Floor(level*float64(len(t.chance)+1)+1e-9)) - 1 // how many of chance may be larger
	by := math.Inf(1)
	if beyond >= 0 {
		by = t.chance[max(0, len(t.chance)-1-beyond)] * t.spread()
	}
	t.Low, t.High = t.size()-by, t.size()+by
}
