package main

import (
	"fmt"
	"html/template"
	"math"
	"slices"
	"strings"
	"unicode/utf8"
)

// A chart in units of its viewBox, which on most screens are pixels. The page sizes its
// text in the same units.
const (
	chartWide = 360
	chartLeft = 46 // the numbers of the axis
	chartEnd  = chartWide - 14
	plotHigh  = 110
	axisHigh  = 20 // the seconds below
	labelHigh = 15 // a row of phase names above
	charWide  = 7.6
	longLabel = 40 // letters that fit
)

// kinds are the possible outcomes of a request; page.html has a color and a dash for each.
var kinds = []struct {
	Name, Text string
	of         func(second) int
}{
	{"passed", "passed", func(s second) int { return s.Passed }},
	{"limited", "limited (429)", func(s second) int { return s.Limited }},
	{"shed", "shed (503)", func(s second) int { return s.Shed }},
	{"failed", "failed", func(s second) int { return s.Failed }},
}

// plot is shared by a scenario's charts, so that readers can compare regions.
type plot struct {
	s         *result
	seconds   int
	top, step int // of the vertical axis
	labels    []label
	rows      int // of labels
}

type label struct {
	phase    string
	text     string // the name, or as much of it as fits
	from, to float64
	x        float64
	anchor   string // which end of the text x is
	row      int
}

func newPlot(s *result) *plot {
	p := &plot{s: s, rows: 1}
	most, cut := 1, true
	for _, t := range s.Traffic {
		p.seconds = max(p.seconds, len(t.Each))
	}
	for _, t := range s.Traffic {
		for i, sec := range t.Each {
			for _, k := range kinds {
				most = max(most, k.of(sec))
			}
			cut = cut && (i < p.seconds-1 || sec.Failed == 0 && sec.Shed == 0)
		}
	}
	// A run ends within a second, whose count would look like a collapse.
	if cut && p.seconds > 2 {
		p.seconds--
	}
	p.seconds = max(p.seconds, 1)
	p.step = niceStep(most, 3)
	p.top = (most + p.step - 1) / p.step * p.step
	p.place()
	return p
}

// niceStep returns the smallest of 1, 2, 5, 10, 20 ... that divides n into few parts.
func niceStep(n, few int) int {
	for base := 1; ; base *= 10 {
		for _, f := range []int{1, 2, 5} {
			if n <= few*f*base {
				return f * base
			}
		}
	}
}

// secondStep is niceStep for times.
func secondStep(n int) int {
	for _, step := range []int{1, 2, 5, 10, 15, 30, 60, 120, 300, 600} {
		if n <= 6*step {
			return step
		}
	}
	return (n + 5) / 6
}

// place arranges the phases' names in rows without overlap.
func (p *plot) place() {
	var ends []float64
	for i, ph := range p.s.Phases {
		l := label{phase: ph.Name, text: ph.Name, from: p.at(i), to: float64(p.seconds)}
		if i+1 < len(p.s.Phases) {
			l.to = p.at(i + 1)
		}
		if name := []rune(ph.Name); len(name) > longLabel {
			l.text = string(name[:longLabel-1]) + "…"
		}
		wide := float64(utf8.RuneCountInString(l.text)) * charWide
		l.x, l.anchor = p.x(l.from)+3, "start"
		if l.x+wide > chartWide { // to the left of its line, if there is room
			l.anchor, l.x = "end", max(p.x(l.from)-3, wide)
		}
		begin := l.x
		if l.anchor == "end" {
			begin -= wide
		}
		for l.row = 0; l.row < len(ends) && ends[l.row] > begin; l.row++ {
		}
		if l.row == len(ends) {
			ends = append(ends, 0)
		}
		ends[l.row] = begin + wide
		p.labels = append(p.labels, l)
	}
	p.rows = max(1, len(ends))
}

// at returns when a phase begins, in seconds of the chart.
func (p *plot) at(i int) float64 {
	return min(float64(p.seconds), max(0, p.s.Phases[i].From.Sub(p.s.Began).Seconds()))
}

func (p *plot) x(second float64) float64 {
	return chartLeft + second*(chartEnd-chartLeft)/float64(p.seconds)
}

func (p *plot) base() int { return p.rows*labelHigh + 6 + plotHigh }

func (p *plot) y(v int) float64 {
	return float64(p.base()) - float64(v)*plotHigh/float64(p.top)
}

// chart draws a region's answers by second, and the phases.
func (p *plot) chart(t traffic) template.HTML {
	var b strings.Builder
	say := template.HTMLEscapeString
	peaks := ""
	for _, k := range kinds {
		if top := peak(t, k.of); top > 0 {
			peaks += fmt.Sprintf(", %s at most %d", k.Text, top)
		}
	}
	fmt.Fprintf(&b, `<svg viewBox="0 0 %d %d" role="img" aria-label="%s: answers per second over %d s%s">`, chartWide, p.base()+axisHigh, say(t.Region), p.seconds, peaks)
	p.phases(&b, t.Region)
	for v := 0; v <= p.top; v += p.step {
		fmt.Fprintf(&b, `<path class="grid" d="M%d %.1f H%d"/><text x="%d" y="%.1f" text-anchor="end">%s</text>`, chartLeft, p.y(v), chartEnd, chartLeft-6, p.y(v)+4, short(v))
	}
	for s, step := 0, secondStep(p.seconds); s <= p.seconds; s += step {
		anchor := "middle"
		if s == 0 {
			anchor = "start" // clear of the axis's 0
		}
		fmt.Fprintf(&b, `<text x="%.1f" y="%d" text-anchor="%s">%d s</text>`, min(p.x(float64(s)), chartEnd-4), p.base()+16, anchor, s)
	}
	if peaks == "" {
		fmt.Fprintf(&b, `<text class="none" x="%d" y="%d" text-anchor="middle">no answers</text>`, (chartLeft+chartEnd)/2, p.base()-plotHigh/2)
	}
	for _, k := range kinds {
		if peak(t, k.of) == 0 {
			continue
		}
		line := ""
		for i := range p.seconds { // a region that fell silent has fewer
			v := 0
			if i < len(t.Each) {
				v = k.of(t.Each[i])
			}
			line += fmt.Sprintf(" %.1f,%.1f", p.x(float64(i)+.5), p.y(v))
		}
		fmt.Fprintf(&b, `<polyline class="%s" points="%s"><title>%s</title></polyline>`, k.Name, line[1:], k.Text)
	}
	b.WriteString(`</svg>`)
	return template.HTML(b.String())
}

// phases marks where phases begin, and shades those in which the region may exceed a limit.
func (p *plot) phases(b *strings.Builder, region string) {
	top := p.base() - plotHigh
	for _, l := range p.labels {
		if slices.ContainsFunc(p.s.Bounds, func(b bound) bool { return b.Region == region && slices.Contains(b.Phases, l.phase) }) {
			fmt.Fprintf(b, `<rect class="fault" x="%.1f" y="%d" width="%.1f" height="%d"/>`, p.x(l.from), top, p.x(l.to)-p.x(l.from), plotHigh)
		}
		y := l.row * labelHigh
		fmt.Fprintf(b, `<path class="phase" d="M%.1f %d V%d"/><text x="%.1f" y="%d" text-anchor="%s">%s`, p.x(l.from), y+2, p.base(), l.x, y+12, l.anchor, template.HTMLEscapeString(l.text))
		if l.text != l.phase {
			fmt.Fprintf(b, `<title>%s</title>`, template.HTMLEscapeString(l.phase))
		}
		b.WriteString(`</text>`)
	}
}

func peak(t traffic, of func(second) int) int {
	most := 0
	for _, s := range t.Each {
		most = max(most, of(s))
	}
	return most
}

// number groups thousands.
func number(n int) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// short formats a number for the axis.
func short(n int) string {
	switch {
	case n >= 1e6:
		return fmt.Sprintf("%g M", float64(n)/1e6)
	case n >= 1e4:
		return fmt.Sprintf("%g k", float64(n)/1e3)
	}
	return number(n)
}

// percent keeps a decisive digit: 100.4% is more than 100%.
func percent(v float64) string {
	if v == math.Trunc(v) {
		return number(int(v)) + "%"
	}
	return fmt.Sprintf("%.1f%%", v)
}
