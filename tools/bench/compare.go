package main

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/weir-edge/weir/tools/internal/paired"
	"github.com/weir-edge/weir/tools/internal/report"
	"github.com/weir-edge/weir/tools/internal/svg"
)

// contender is one of the programs measured against each other.
type contender struct {
	paired.Contender
	ours  bool
	goal  float64 // minimum ratio to the first contender
	calls float64 // maximum Redis calls per request; 0 for no goal
	asks  bool    // count its calls to Redis
}

// beforeSuffix marks the contenders of the older edge.
const beforeSuffix = ", before"

// compare measures the contenders in turn, prints their ratios to the first, and keeps the
// table. unit names what is counted per second.
func (b *bench) compare(ctx context.Context, name, title, unit string, contenders ...*contender) error {
	if b.starting {
		b.earlier[name] = contenders
		return nil
	}
	for _, c := range b.earlier[name] {
		if c.ours {
			c.Name += beforeSuffix
			contenders = append(contenders, c)
		}
	}
	var all []*paired.Contender
	counted := false
	for _, c := range contenders {
		all = append(all, &c.Contender)
		counted = counted || c.asks
	}
	if err := paired.Run(ctx, b.length, all...); err != nil {
		return err
	}
	rounds := len(all[0].Samples)
	t := &report.Table{Name: name, Title: fmt.Sprintf("%s. Median of %d %s of %v", title, rounds, plural("round", rounds), b.duration),
		Head: []string{"", unit + " a second", "p99", "ratio", "goal"}}
	if counted {
		t.Head = append(t.Head, "calls to Redis a decision")
	}
	var rows []svg.Row
	rates := svg.Panel{Title: unit + " a second (and ratio)"}
	tails := svg.Panel{Title: "p99, ms"}
	for i, c := range contenders {
		rate := c.Median(func(s paired.Sample) float64 { return s.Rate })
		p99 := c.Median(func(s paired.Sample) float64 { return float64(s.P99) })
		ratio, fault := c.Ratio(all[0])
		text := "1"
		if i > 0 {
			text = ratioText(ratio, fault)
		}
		goal := ""
		if c.goal > 0 {
			goal = fmt.Sprintf("≥ %g %s", c.goal, mark(ratio >= c.goal))
		}
		cells := []string{c.Name, whole(rate), tail(p99), text, goal}
		if counted {
			calls := ""
			if c.asks {
				n := c.Median(func(s paired.Sample) float64 { return s.Calls })
				calls = fmt.Sprintf("%.4f", n)
				if c.calls > 0 {
					calls += fmt.Sprintf(", goal ≤ %g %s", c.calls, mark(n <= c.calls))
				}
			}
			cells = append(cells, calls)
		}
		t.Add(cells...)
		rows = append(rows, svg.Row{Label: c.Name, Anchor: !c.ours})
		rates.Values, rates.Texts = append(rates.Values, rate), append(rates.Texts, fmt.Sprintf("%s (%.2f)", whole(rate), ratio))
		tails.Values, tails.Texts = append(tails.Values, p99/float64(time.Millisecond)), append(tails.Texts, tail(p99))
	}
	panels := []svg.Panel{rates}
	if tails.Values[0] > 0 {
		panels = append(panels, tails)
	}
	t.Charts = []report.Chart{{Alt: title + ", as bars", Picture: &svg.Bars{Title: title, Rows: rows, Panels: panels}}}
	fmt.Println(t.Text())
	for _, c := range contenders {
		for _, before := range b.earlier[name] {
			if before.Name == c.Name+beforeSuffix {
				fmt.Println(c.Name+", of the rate before:", ratioText(c.Ratio(&before.Contender)))
			}
		}
	}
	b.tables = append(b.tables, t)
	return ctx.Err()
}

// ratioText formats a ratio with its standard error, if known.
func ratioText(ratio, fault float64) string {
	switch {
	case math.IsInf(fault, 0):
		return fmt.Sprintf("%.2f", ratio)
	case ratio >= 10:
		return fmt.Sprintf("%.0f ± %.1f", ratio, fault)
	}
	return fmt.Sprintf("%.3f ± %.3f", ratio, fault)
}

func mark(ok bool) string {
	if ok {
		return "✓"
	}
	return "✗"
}

// tail formats a 99th percentile, "" if there is none.
func tail(d float64) string {
	switch {
	case !(d > 0):
		return ""
	case d < 1e6:
		return fmt.Sprintf("%.0f µs", d/1e3)
	}
	return fmt.Sprintf("%.1f ms", d/1e6)
}

func plural(word string, n int) string {
	if n == 1 {
		return word
	}
	return word + "s"
}
