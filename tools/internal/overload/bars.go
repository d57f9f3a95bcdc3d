package overload

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// bar is a requirement at a load.
type bar struct {
	load, text string
	judge      func(*Column) Cell
	only       string // the one column that must hold it; "" for all
	detail     bool   // left out of a brief table
}

// bars are the rows of the table.
func bars() []bar {
	var all []bar
	for i, least := range []float64{0.90, 0.85, 0.80} { // by overloads
		all = append(all, goodputBar(overloads[i], least))
	}
	for _, load := range overloads {
		all = append(all, latencyBar(load))
	}
	every := "2x, 5x, 10x"
	all = append(all,
		bar{load: every, text: "critical requests answered ≥ 99.9%", judge: worstBar(
			func(r *Result) float64 { return 1 - r.Critical },
			func(lost float64) Cell { return judged(percent(1-lost), lost <= 0.001) })},
		bar{load: every, text: "shed while a lower class is admitted: 0", judge: levelBar(
			func(r *Result) float64 { return float64(r.Faults) },
			func(n float64) Cell { return judged(fmt.Sprintf("%.0f", n), n == 0) })},
		bar{load: every, text: "level swings by < 0.15 once settled", judge: levelBar(
			func(r *Result) float64 { return r.Swing },
			func(swing float64) Cell { return judged(fmt.Sprintf("%.3f", swing), swing < 0.15) })},
		bar{load: every, text: "goodput varies by < 5% once settled", judge: worstBar(
			func(r *Result) float64 { return r.Variation },
			func(v float64) Cell { return judged(percent(v), v < 0.05) })},
		bar{load: every, text: "sheds within 1 s", judge: worstBar(
			func(r *Result) float64 { return float64(r.Onset) },
			func(d float64) Cell { return judged(elapsed(since(d)), since(d) <= time.Second) })},
		bar{load: "from there to 0.5x", text: "sheds nothing after 10 s", judge: shedBar(
			func(r *Result) float64 { return float64(r.Recovery) },
			func(d float64) Cell { return judged(elapsed(since(d)), since(d) <= 10*time.Second) })},
		bar{load: "0.1x to 0.7x, bursts to 0.9x", text: "requests shed: 0", judge: one(Calm, func(r *Result) Cell {
			return judged(fmt.Sprint(r.Sheds), r.Sheds == 0)
		})},
		bar{load: "0.75x after 2x", text: "level returns to 0", judge: one(Latch, func(r *Result) Cell {
			if r.LevelSheds == 0 {
				return unjudged
			}
			return judged(elapsed(r.LevelZero), r.LevelZero < Never)
		})},
		bar{load: "0.7x after 2x, three retries each", text: "requests answered, retries included ≥ 99%", judge: one(Storm, func(r *Result) Cell {
			return judged(percent(r.Recovered), r.Recovered >= 0.99)
		})},
	)
	for _, load := range slight {
		s := Slight(load)
		all = append(all,
			bar{load: s.Name, detail: true, text: "by the level, of what is shed ≥ 40%", judge: one(s.Name, func(r *Result) Cell {
				if r.Sheds == 0 {
					return unjudged
				}
				return judged(fmt.Sprintf("%.0f%%", 100*r.LevelShare), r.LevelShare >= 0.4)
			})},
			bar{load: s.Name, detail: true, text: "shed of critical, write, read, test, in this order; critical answered ≥ 99.9%", judge: one(s.Name, func(r *Result) Cell {
				var texts []string
				for _, s := range r.Shed {
					texts = append(texts, fmt.Sprintf("%.1f", 100*s))
				}
				return judged(strings.Join(texts, ", ")+"%", slices.IsSorted(r.Shed[:]) && r.Critical >= 0.999)
			})})
	}
	all = append(all, changeBars()...)
	return append(all,
		bar{load: "a refusal", text: "CPU time ≤ 1.1 × a bare 503", judge: refusalBar(func(r *Refusal) Cell {
			return judged(fmt.Sprintf("%.2f", r.CPU), r.CPU <= 1.1)
		})},
		bar{load: "a refusal", text: "throughput ≥ 0.93 of a bare 503", judge: refusalBar(func(r *Refusal) Cell {
			return judged(fmt.Sprintf("%.3f", r.Throughput), r.Throughput >= 0.93)
		})},
		bar{load: "a refusal", text: "allocations: 0", judge: refusalBar(func(r *Refusal) Cell {
			return judged(fmt.Sprintf("%.2f", r.Allocs), r.Allocs < 0.05) // the rest is the process's own upkeep
		})},
	)
}

// Estimated is the contender that must bear changes; one set by hand is for one origin.
const Estimated = "auto"

// changeBars are those of the scenarios in which something changes.
func changeBars() (all []bar) {
	what := map[string]string{
		Slower: "1.5x, the origin slows to half", Faster: "3x, it becomes twice as fast", Joins: "1.5x, a third node joins",
		Leaves: "1.5x, one of three nodes leaves", Longer: "0.8x, answers take 100 ms longer",
	}
	for _, s := range changing() {
		load := what[s.Name]
		if load == "" {
			load = s.Name
		}
		row := func(text string, judge func(*Result) Cell) {
			all = append(all, bar{load: load, text: text, judge: one(s.Name, judge), only: Estimated, detail: true})
		}
		row("goodput ≥ 0.93 of what the origin can; p99 of admitted", func(r *Result) Cell {
			return judged(fmt.Sprintf("%.3f; %s", r.Goodput/s.Serves, elapsed(r.P99)), r.Goodput/s.Serves >= 0.93)
		})
		if s.Load < 1 {
			row("shed < 5%", func(r *Result) Cell { return judged(percent(r.ShedShare), r.ShedShare < 0.05) })
			continue
		}
		row("critical answered ≥ 99.9%; by the level, of what is shed ≥ 80%", func(r *Result) Cell {
			return judged(fmt.Sprintf("%s; %.0f%%", percent(r.Critical), 100*r.LevelShare), r.Critical >= 0.999 && r.LevelShare >= 0.8)
		})
	}
	return all
}

func goodputBar(load, least float64) bar {
	s := Overload(load)
	return bar{load: s.Name, text: fmt.Sprintf("goodput ≥ %.2f C", least), judge: one(s.Name, func(r *Result) Cell {
		return judged(fmt.Sprintf("%.3f", r.Goodput), r.Goodput >= least)
	})}
}

func latencyBar(load float64) bar {
	s := Overload(load)
	return bar{load: s.Name, text: "p99 of admitted ≤ 2 × that at 0.7 C", judge: func(c *Column) Cell {
		r, reference := c.result(s.Name), c.result(Reference)
		if r == nil || reference == nil || reference.P99 == 0 {
			return Cell{}
		}
		ratio := float64(r.P99) / float64(reference.P99)
		return judged(fmt.Sprintf("%.2f (%s)", ratio, elapsed(r.P99)), ratio <= 2)
	}}
}

// one judges the result of a scenario.
func one(scenario string, judge func(*Result) Cell) func(*Column) Cell {
	return func(c *Column) Cell {
		r := c.result(scenario)
		if r == nil {
			return Cell{}
		}
		return judge(r)
	}
}

// worstBar judges the largest figure of the overloads.
func worstBar(figure func(*Result) float64, judge func(float64) Cell) func(*Column) Cell {
	return func(c *Column) Cell {
		largest, ok := c.worst(figure)
		if !ok {
			return Cell{}
		}
		return judge(largest)
	}
}

// shedBar is a worstBar for contenders that shed at all.
func shedBar(figure func(*Result) float64, judge func(float64) Cell) func(*Column) Cell {
	return ifAny(func(r *Result) float64 { return float64(r.Sheds) }, worstBar(figure, judge))
}

// levelBar is a worstBar for contenders with a level.
func levelBar(figure func(*Result) float64, judge func(float64) Cell) func(*Column) Cell {
	return ifAny(func(r *Result) float64 { return float64(r.LevelSheds) }, worstBar(figure, judge))
}

func ifAny(count func(*Result) float64, judge func(*Column) Cell) func(*Column) Cell {
	return func(c *Column) Cell {
		if most, ok := c.worst(count); ok && most == 0 {
			return unjudged
		}
		return judge(c)
	}
}

func refusalBar(judge func(*Refusal) Cell) func(*Column) Cell {
	return func(c *Column) Cell {
		if c.Refusal == nil {
			return Cell{}
		}
		return judge(c.Refusal)
	}
}

func percent(share float64) string {
	if math.IsInf(share, 0) {
		return "∞"
	}
	return fmt.Sprintf("%.2f%%", 100*share)
}

// since undoes the conversion of a duration to a float64, in which Never is not exact.
func since(nanoseconds float64) time.Duration {
	if nanoseconds >= float64(Never) {
		return Never
	}
	return time.Duration(nanoseconds)
}
