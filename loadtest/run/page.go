package main

import (
	"cmp"
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"slices"
	"strings"
)

//go:embed page.html
var pageText string

// The page is one file without scripts that loads nothing, so that it can be mailed,
// archived and opened anywhere.
var pageTemplate = template.Must(template.New("page").Funcs(template.FuncMap{
	"join": strings.Join, "number": number, "percent": share,
}).Parse(pageText))

// share is a percentage that does not break across lines.
func share(v float64) string { return strings.ReplaceAll(percent(v), " ", "\u00a0") }

// view is a report as the page shows it.
type view struct {
	*report
	Good     int
	Failed   []*section
	Calm     row // the sum of everything with a bound of 0
	Admitted int // of that, as are Refused
	Refused  int
	Faults   []*section
	Proofs   []*section
	Sections []*section
}

// section is a scenario.
type section struct {
	result
	OK     bool
	Found  []found
	Charts []figure
	Kinds  []string // what the charts' lines can be
	Rows   []row
	Limits []limit
	Lines  []line
}

type figure struct {
	Region  string
	Drawing template.HTML
}

// found is the worst finding next to its bound.
type found struct {
	Where, Worst, Bound string
	OK                  bool
}

// limit is a bound and its outcome.
type limit struct {
	bound
	Worst    *line // nil if no window was exceeded
	Over     int
	Admitted int // in the first of its phases
	Alone    int // edges' decisions without Redis
}

func (l limit) OK() bool { return l.Share() <= l.Percent && (l.Worst != nil || l.Over == 0) }

// Excused reports whether more than the limit may pass.
func (l limit) Excused() bool { return l.Late || l.Alone > 0 }

// Share is the worst excess, in percent of the limit.
func (l limit) Share() float64 {
	if l.Worst == nil {
		return 0
	}
	return l.Worst.Worst.Percent
}

func (r *report) html(out io.Writer) error {
	v := view{report: r}
	for _, s := range r.Scenarios {
		sec := newSection(s, r.Lab)
		v.Sections = append(v.Sections, sec)
		if sec.OK {
			v.Good++
		} else {
			v.Failed = append(v.Failed, sec)
		}
		if s.MustFail {
			v.Proofs = append(v.Proofs, sec)
			continue
		}
		if len(s.Bounds) > 0 {
			v.Faults = append(v.Faults, sec)
		}
		for _, row := range sec.Rows {
			v.Calm.Over += row.Over
			v.Calm.Wrong += row.Wrong
			v.Calm.Retry += row.Retry
		}
		for _, l := range s.Report {
			if s.bound(l) == nil {
				v.Admitted += l.Admitted
				v.Refused += l.Refused
			}
		}
	}
	return pageTemplate.Execute(out, v)
}

func newSection(s result, lab state) *section {
	sec := &section{result: s, OK: len(s.Problems) == 0, Rows: s.rows(lab), Lines: slices.Clone(s.Report)}
	plot := newPlot(&s)
	for _, row := range sec.Rows { // in the order of the lab; k6 orders by first answer
		sec.Charts = append(sec.Charts, figure{row.Region, plot.chart(row.traffic)})
	}
	for _, k := range kinds {
		if slices.ContainsFunc(s.Traffic, func(t traffic) bool { return peak(t, k.of) > 0 }) {
			sec.Kinds = append(sec.Kinds, k.Name)
		}
	}
	// By region, rule and time; the oracle orders by name.
	region := func(l line) int {
		return slices.IndexFunc(lab.Regions, func(r region) bool { return r.Name == l.Region })
	}
	phase := func(l line) int {
		return slices.IndexFunc(s.Phases, func(p phase) bool { return p.Name == l.Phase })
	}
	slices.SortStableFunc(sec.Lines, func(a, b line) int {
		return cmp.Or(cmp.Compare(region(a), region(b)), cmp.Compare(a.Rule, b.Rule), cmp.Compare(phase(a), phase(b)))
	})
	for i := range s.Bounds {
		sec.Limits = append(sec.Limits, s.limit(i))
	}
	sec.Found = sec.found()
	return sec
}

// Main is the most informative problem: a threshold only has a name.
func (s *section) Main() string {
	for _, p := range s.Problems {
		if !strings.HasPrefix(p, "threshold: ") {
			return p
		}
	}
	return s.Problems[0]
}

// Strict reports whether a line of the oracle has a bound of 0.
func (s *section) Strict(l line) bool { return !s.MustFail && s.bound(l) == nil }

// Beyond reports whether a line exceeds its bound.
func (s *section) Beyond(l line) bool {
	b := s.bound(l)
	return !s.MustFail && (b == nil || l.Worst == nil || l.Worst.Percent > b.Percent)
}

// limit collects what the oracle reports about a bound, which is 0 if no edge decided
// on its own.
func (r *result) limit(i int) limit {
	lim := limit{bound: r.Bounds[i], Alone: r.Fallback[r.Bounds[i].Region]}
	if !lim.Excused() {
		lim.Percent = 0
	}
	for _, l := range r.Report {
		if !lim.covers(l) {
			continue
		}
		lim.Over += l.Overadmitted
		if l.Phase == lim.Phases[0] {
			lim.Admitted += l.Admitted
		}
		if l.Worst != nil && (lim.Worst == nil || l.Worst.Percent > lim.Worst.Worst.Percent) {
			lim.Worst = &l
		}
	}
	return lim
}

// found returns the worst of each kind of bound, for the table of all scenarios.
func (s *section) found() []found {
	var all []found
	rest := "throughout"
	for i, l := range s.Limits {
		f := found{cmp.Or(map[bool]string{true: l.Rule}[l.Late], "in the fault"), share(l.Share()), share(l.Percent), l.OK()}
		if len(s.Limits) > 1 && !l.Late {
			f.Where += fmt.Sprintf(" %d", i+1)
		}
		if l.Worst == nil && l.Over > 0 {
			f.Worst = number(l.Over) + " over"
		}
		all = append(all, f)
		rest = "otherwise"
	}
	for _, w := range s.Waits {
		if w.Longest != nil {
			all = append(all, found{w.Name(), w.Found(), w.Bound(), w.OK()})
		}
	}
	over, most := 0, 0.0
	for _, l := range s.Report {
		if s.bound(l) == nil {
			over += l.Overadmitted
			if l.Worst != nil {
				most = max(most, l.Worst.Percent)
			}
		}
	}
	f := found{rest, share(most), share(0), over == 0}
	if s.MustFail {
		f.Bound, f.OK = "above "+share(0), over > 0
	}
	if over > 0 && most == 0 {
		f.Worst = number(over) + " over"
	}
	return append(all, f)
}

// Name is the metric's, made readable.
func (w wait) Name() string { return strings.ReplaceAll(w.Metric, "_", " ") }

func (w wait) OK() bool { return w.Longest == nil || *w.Longest < w.Seconds }

// Found is empty if nothing was measured.
func (w wait) Found() string {
	if w.Longest == nil {
		return ""
	}
	return fmt.Sprintf("%.1f\u00a0s", *w.Longest)
}

func (w wait) Bound() string { return fmt.Sprintf("%.0f\u00a0s", w.Seconds) }

// Beyond reports whether a limit was exceeded further than a fault allows.
func (r row) Beyond() bool { return r.Worst > r.Bound }

// Text is the legend's.
func (s *section) Text(kind string) string {
	for _, k := range kinds {
		if k.Name == kind {
			return k.Text
		}
	}
	return kind
}
