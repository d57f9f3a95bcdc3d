package overload

import (
	"fmt"
	"time"
)

// Plan is a load over time.
type Plan []Step

// Length is how long the plan takes.
func (p Plan) Length() time.Duration { return p.begin(len(p)) }

// Span returns the time of step i.
func (p Plan) Span(i int) Span { return Span{p.begin(i), p.begin(i + 1)} }

func (p Plan) begin(i int) time.Duration {
	sum := time.Duration(0)
	for _, step := range p[:i] {
		sum += step.For
	}
	return sum
}

// shortStep is enough for a law that acts in seconds, and leaves ten seconds of a step
// after it has Settled.
const shortStep = 20 * time.Second

// Scale returns the plan or, if short, its short form: no step takes longer than 20 s.
func (p Plan) Scale(short bool) Plan {
	scaled := make(Plan, len(p))
	for i, step := range p {
		if short {
			step.For = min(step.For, shortStep)
		}
		scaled[i] = step
	}
	return scaled
}

// Mix divides a load, a share of Capacity, among the classes: critical requests are a
// fifth of Capacity, or half of a load below two fifths; of the rest, a fifth are
// writes, three fifths reads and a fifth tests.
func Mix(load float64) []float64 {
	critical := min(0.2, load/2)
	rest := load - critical
	mix := make([]float64, Classes)
	mix[Critical], mix[Write], mix[Read], mix[Test] = critical, 0.2*rest, 0.6*rest, 0.2*rest
	return mix
}

// Scenario is a plan and the part of it to measure.
type Scenario struct {
	Name string
	Load float64 // of the step that is measured, as a share of Capacity
	Plan Plan
	Step int // the one that is measured
	// Disturb makes a real run collect garbage and replace the rules meanwhile.
	Disturb bool
	// Changes happen meanwhile, in order; Serves is what the origin can answer in the step
	// that is measured, as a share of Capacity, or 0 if that does not vary.
	Changes []Change
	Serves  float64
}

// The scenarios not named by their load.
const (
	Reference = "reference" // the baseline of the 99th percentiles
	Calm      = "calm"      // in which nothing may be shed
	Latch     = "latch"     // a load near capacity after an overload
	Storm     = "storm"     // refusals are repeated
)

// overloads are the loads of the table, in Capacity.
var overloads = []float64{2, 5, 10}

// slight are the table's loads that caps alone could bear.
var slight = []float64{1.02, 1.05, 1.1}

// Scenarios returns the table's scenarios, in their short form if short.
func Scenarios(short bool) []Scenario {
	all := []Scenario{{Name: Reference, Load: 0.7, Plan: Plan{{30 * time.Second, Mix(0.7), 0}}}}
	for _, load := range overloads {
		all = append(all, Overload(load))
	}
	all = append(all,
		Scenario{Name: Calm, Load: 0.7, Plan: calm(), Disturb: true},
		Scenario{Name: Latch, Load: 0.75, Step: 2, Plan: Plan{
			{5 * time.Second, Mix(0.5), 0},
			{20 * time.Second, Mix(2), 0},
			{60 * time.Second, Mix(0.75), 0},
		}},
		Scenario{Name: Storm, Load: 0.7, Step: 2, Plan: Plan{
			{10 * time.Second, Mix(0.5), 3},
			{20 * time.Second, Mix(2), 3},
			{30 * time.Second, Mix(0.7), 3},
		}})
	if !short { // patience, or what follows a change, takes longer
		all = append(all, changing()...)
		for _, load := range slight {
			all = append(all, Slight(load))
		}
	}
	for i := range all {
		all[i].Plan = all[i].Plan.Scale(short)
	}
	return all
}

// Overload is a step to a load and back.
func Overload(load float64) Scenario {
	return Scenario{Name: fmt.Sprintf("%gx", load), Load: load, Step: 1, Plan: Plan{
		{10 * time.Second, Mix(0.5), 0},
		{60 * time.Second, Mix(load), 0},
		{15 * time.Second, Mix(0.5), 0},
	}}
}

// Slight is a lasting step to a load slightly above capacity. It is measured after a minute,
// when patience has run out.
func Slight(load float64) Scenario {
	return Scenario{Name: fmt.Sprintf("%gx", load), Load: load, Step: 2, Plan: Plan{
		{10 * time.Second, Mix(0.5), 0},
		{60 * time.Second, Mix(load), 0},
		{120 * time.Second, Mix(load), 0},
	}}
}

// steadily is a lasting load, used where the origin changes.
const steadily = 1.5

// The scenarios in which the origin or the nodes change while users demand more than the origin
// can serve, and one with constant demand whose work takes longer.
const (
	Slower = "slower"
	Faster = "faster"
	Joins  = "joins"
	Leaves = "leaves"
	Longer = "longer"
)

func changing() []Scenario {
	change := func(name string, load, serves float64, nodes int, c Change) Scenario {
		s := Scenario{Name: name, Load: load, Serves: serves, Step: 2, Plan: Plan{
			{10 * time.Second, Mix(0.5), 0},
			{20 * time.Second, Mix(load), 0},
			{40 * time.Second, Mix(load), 0},
		}}
		if nodes > 1 {
			s.Changes = []Change{{Nodes: nodes}}
		}
		c.At = s.Plan.begin(2)
		s.Changes = append(s.Changes, c)
		return s
	}
	steady := Overload(steadily)
	steady.Serves = 1
	return []Scenario{
		steady,
		change(Slower, steadily, 0.5, 1, Change{Slowness: 2}),
		change(Faster, 2*steadily, 2, 1, Change{Slowness: 0.5}),
		change(Joins, steadily, 1, 2, Change{Nodes: 3}),
		change(Leaves, steadily, 1, 3, Change{Nodes: 2}),
		change(Longer, 0.8, 0.8, 1, Change{Delay: 100 * time.Millisecond}),
	}
}

// calm rises from 0.1 to 0.7 within a minute, with a burst to 0.9 for a second at each
// step.
func calm() Plan {
	var p Plan
	for load := 1; load <= 7; load++ {
		p = append(p, Step{7600 * time.Millisecond, Mix(float64(load) / 10), 0}, Step{time.Second, Mix(0.9), 0})
	}
	return p
}
