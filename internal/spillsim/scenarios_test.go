package spillsim

import (
	"slices"
	"time"
)

// repeated returns n times the same capacity or demand.
func repeated(n int, v float64) []float64 { return slices.Repeat([]float64{v}, n) }

// but returns list with other values at some places.
func but(list []float64, v float64, at ...int) []float64 {
	list = slices.Clone(list)
	for _, i := range at {
		list[i] = v
	}
	return list
}

// step changes every PoP's demand at once.
func step(before, after []float64) func(int, time.Duration) float64 {
	return func(p int, t time.Duration) float64 {
		if t < 0 {
			return before[p]
		}
		return after[p]
	}
}

// ramp changes it linearly over a while.
func ramp(before, after []float64, over time.Duration) func(int, time.Duration) float64 {
	return func(p int, t time.Duration) float64 {
		done := min(1, max(0, t.Seconds()/over.Seconds()))
		return before[p] + done*(after[p]-before[p])
	}
}

// six has room for a crowd: six PoPs at 60%.
var six = repeated(6, 600)

// fifty PoPs of three sizes, at 65%.
func fifty(full float64) (list []float64) {
	for p := range 50 {
		list = append(list, full*[]float64{150, 300, 600}[p%3])
	}
	return list
}

var scenarios = []scenario{
	{name: "1,200 of 1,000 next to one half idle", capacity: repeated(2, 1000), demand: step([]float64{600, 500}, []float64{1200, 500})},
	{name: "6,500 of 5,000 next to a small one", capacity: []float64{5000, 1000}, demand: step([]float64{3500, 500}, []float64{6500, 500}), seeds: 3, allowances: allowances{late: 0.005}},
	{name: "ramp to 1,600 of 1,000 in 10 minutes, 3 PoPs", capacity: repeated(3, 1000), demand: ramp(repeated(3, 600), but(repeated(3, 600), 1600, 0), 10*time.Minute),
		change: 10 * time.Minute, seeds: 3, allowances: allowances{shed: 0.004}},
	{name: "flash crowd of 4 times at one of 6", capacity: repeated(6, 1000), demand: step(six, but(six, 2400, 2)), seeds: 3, allowances: allowances{moves: 1.3}},
	{name: "the crowd leaves after 10 minutes", capacity: repeated(6, 1000), change: 10 * time.Minute, demand: func(p int, t time.Duration) float64 {
		if p == 2 && t >= 0 && t < 10*time.Minute {
			return 2400
		}
		return 600
	}},
	{name: "1,600 of 1,000 for half of each minute, at one of 6", capacity: repeated(6, 1000), change: 3 * time.Minute, demand: func(p int, t time.Duration) float64 {
		if p == 2 && t >= 0 && t/(30*time.Second)%2 == 0 {
			return 1600
		}
		return 600
	}},
	{name: "one of 6 regions lost, capacity stated", capacity: repeated(6, 1000), stated: true, demand: step(repeated(6, 700), repeated(6, 700)),
		lost: func(p int, _ time.Duration) bool { return p == 2 }},
	{name: "one of 6 regions lost, capacity not stated", capacity: repeated(6, 1000), demand: step(repeated(6, 700), repeated(6, 700)),
		lost: func(p int, _ time.Duration) bool { return p == 2 }},
	{name: "one of 6 regions is back after 5 minutes, with new edges", capacity: repeated(6, 1000), change: 5 * time.Minute, demand: step(repeated(6, 700), repeated(6, 700)),
		lost: func(p int, t time.Duration) bool { return p == 2 && t < 5*time.Minute }},
	{name: "50 PoPs, 5 of them at 150%", capacity: fifty(1), demand: step(fifty(0.65), crowded(fifty(0.65), 1.5/0.65)), length: 5 * time.Minute},
	{name: "50 PoPs, 5 regions lost, capacity stated", capacity: fifty(1), stated: true, demand: step(fifty(0.65), fifty(0.65)), length: 5 * time.Minute,
		lost: func(p int, _ time.Duration) bool { return p%10 == 4 }},
	{name: "1,200 of 1,000; one router hears nothing from before", capacity: repeated(2, 1000), demand: step([]float64{600, 500}, []float64{1200, 500}),
		deaf: -10 * time.Second, allowances: allowances{shed: 0.04}},
	{name: "1,200 of 1,000; one router hears nothing from before, and does not yield", capacity: repeated(2, 1000), demand: step([]float64{600, 500}, []float64{1200, 500}),
		deaf: -10 * time.Second, alone: true, allowances: allowances{moves: 36, shed: 0.04, late: 0.003}},
	{name: "1,200 of 1,000; one router restarts after 5 minutes", capacity: repeated(2, 1000), demand: step([]float64{600, 500}, []float64{1200, 500}),
		restarts: 5 * time.Minute, change: 5 * time.Minute},
	{name: "1,200 of 1,000; one router hears nothing for 5 minutes", capacity: repeated(2, 1000), demand: step([]float64{600, 500}, []float64{1200, 500}),
		deaf: -10 * time.Second, hears: 5 * time.Minute, change: 5 * time.Minute},
}

// crowded multiplies the demand of every tenth PoP.
func crowded(list []float64, by float64) []float64 {
	for p := 4; p < len(list); p += 10 {
		list[p] *= by
	}
	return list
}
