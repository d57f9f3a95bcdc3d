package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"
)

// result is the outcome of a scenario.
type result struct {
	Name     string         `json:"name"`
	About    string         `json:"about"`
	MustFail bool           `json:"must_fail,omitempty"`
	Problems []string       `json:"problems"`
	Began    time.Time      `json:"began"`
	Seconds  float64        `json:"seconds"`
	Status   int            `json:"k6_status"`
	Repeated []string       `json:"repeated,omitempty"` // why earlier attempts do not count
	Phases   []phase        `json:"phases"`
	Planned  []string       `json:"planned_phases"` // the phases that the script declares
	Failed   []string       `json:"failed_acts,omitempty"`
	Bounds   []bound        `json:"bounds"`
	Waits    []wait         `json:"waits"`
	Report   []line         `json:"oracle"`
	Checks   []check        `json:"thresholds"`
	Fallback map[string]int `json:"decided_without_store"`
	Traffic  []traffic      `json:"traffic"`
	// Sent is how many iterations k6 ran, Dropped how many it had no time for.
	Sent    int `json:"sent"`
	Dropped int `json:"dropped,omitempty"`
}

// bound says how far a rule may be exceeded per window in a region during some phases.
type bound struct {
	Rule    string   `json:"rule"`
	Region  string   `json:"region"`
	Phases  []string `json:"phases"`
	Percent float64  `json:"percent"`
	// Fallback is set if the fault must cause decisions without Redis: without any, it had no
	// effect.
	Fallback bool `json:"fallback,omitempty"`
	// Least is how many requests must be admitted in the first of the phases; nothing else
	// bounds wrong refusals.
	Least int `json:"least,omitempty"`
	// Late is set if more may pass although nothing is broken: regions hear late of each
	// other.
	Late bool   `json:"late,omitempty"`
	Why  string `json:"why"`
}

// everywhere is the oracle's region of rules that regions share.
const everywhere = "everywhere"

// wait bounds how long something may take; a threshold of the script enforces it.
type wait struct {
	Metric  string   `json:"metric"`
	Seconds float64  `json:"seconds"`
	Longest *float64 `json:"longest,omitempty"` // nil if k6 has no such metric
	Why     string   `json:"why"`
}

// line is one of the oracle's report.
type line struct {
	Region         string  `json:"region"`
	Rule           string  `json:"rule"`
	Phase          string  `json:"phase"`
	Admitted       int     `json:"admitted"`
	Refused        int     `json:"refused"`
	Unknown        int     `json:"unknown"`
	Unjudged       int     `json:"unjudged"`
	Overadmitted   int     `json:"overadmitted"`
	WronglyRefused int     `json:"wronglyRefused"`
	RetryChecked   int     `json:"retryChecked"`
	RetryWrong     int     `json:"retryWrong"`
	RetryWorst     float64 `json:"retryWorstSeconds"`
	Worst          *struct {
		Key     string  `json:"key"`
		At      string  `json:"at"`
		Excess  int     `json:"excess"`
		Limit   int     `json:"limit"`
		Window  string  `json:"window"`
		Percent float64 `json:"percent"`
	} `json:"worst,omitempty"`
}

type check struct {
	Metric string `json:"metric"`
	Expr   string `json:"expr"`
	OK     bool   `json:"ok"`
}

// traffic counts the answers to a region's clients.
type traffic struct {
	Region  string   `json:"region"`
	Passed  int      `json:"passed"`
	Limited int      `json:"limited"`
	Shed    int      `json:"shed"`
	Failed  int      `json:"failed"`
	P50     float64  `json:"p50_ms"`
	P95     float64  `json:"p95_ms"`
	Each    []second `json:"each_second"`

	times []float64
}

type second struct {
	Passed  int `json:"passed"`
	Limited int `json:"limited"`
	Shed    int `json:"shed"`
	Failed  int `json:"failed"`
}

// read reads k6's output.
func (r *result) read(summary, points string) error {
	text, err := os.ReadFile(summary)
	if err != nil {
		return err
	}
	var s struct {
		About   string   `json:"about"`
		Phases  []string `json:"phases"`
		Bounds  []bound  `json:"bounds"`
		Waits   []wait   `json:"waits"`
		Report  []line   `json:"report"`
		Seconds float64  `json:"seconds"`
		Metrics map[string]struct {
			Values     map[string]float64 `json:"values"`
			Thresholds map[string]struct {
				OK bool `json:"ok"`
			} `json:"thresholds"`
		} `json:"metrics"`
	}
	if err := json.Unmarshal(text, &s); err != nil {
		return fmt.Errorf("%s: %w", summary, err)
	}
	r.About, r.Planned, r.Bounds, r.Waits, r.Report, r.Seconds = s.About, s.Phases, s.Bounds, s.Waits, s.Report, s.Seconds
	for name, m := range s.Metrics {
		for expr, t := range m.Thresholds {
			r.Checks = append(r.Checks, check{name, expr, t.OK})
		}
	}
	for i := range r.Waits {
		if v, ok := s.Metrics[r.Waits[i].Metric].Values["max"]; ok {
			r.Waits[i].Longest = &v
		}
	}
	r.Sent, r.Dropped = int(s.Metrics["iterations"].Values["count"]), int(s.Metrics["dropped_iterations"].Values["count"])
	slices.SortFunc(r.Checks, func(a, b check) int { return strings.Compare(a.Metric+a.Expr, b.Metric+b.Expr) })
	return r.readPoints(points)
}

func (r *result) readPoints(name string) error {
	file, err := os.Open(name)
	if err != nil {
		return err
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if !bytes.Contains(lines.Bytes(), []byte(`"metric":"http_req_duration"`)) {
			continue
		}
		var p struct {
			Type string `json:"type"`
			Data struct {
				Time  time.Time `json:"time"`
				Value float64   `json:"value"`
				Tags  struct{ Region, Pop, Status string }
			} `json:"data"`
		}
		if err := json.Unmarshal(lines.Bytes(), &p); err != nil {
			return err
		}
		if p.Type == "Point" && p.Data.Tags.Region != "" {
			r.count(p.Data.Tags.Region, p.Data.Tags.Status, p.Data.Time, p.Data.Value)
		}
	}
	for i := range r.Traffic {
		t := &r.Traffic[i]
		slices.Sort(t.times)
		if n := len(t.times); n > 0 {
			t.P50, t.P95 = t.times[n/2], t.times[n*95/100]
		}
	}
	return lines.Err()
}

// count records one answer.
func (r *result) count(region, status string, at time.Time, ms float64) {
	i := slices.IndexFunc(r.Traffic, func(t traffic) bool { return t.Region == region })
	if i < 0 {
		i = len(r.Traffic)
		r.Traffic = append(r.Traffic, traffic{Region: region})
	}
	t := &r.Traffic[i]
	n := max(0, int(at.Sub(r.Began).Seconds()))
	for len(t.Each) <= n {
		t.Each = append(t.Each, second{})
	}
	s := &t.Each[n]
	switch status {
	case "200":
		t.Passed++
		s.Passed++
		t.times = append(t.times, ms)
	case "429":
		t.Limited++
		s.Limited++
		t.times = append(t.times, ms)
	case "503":
		t.Shed++
		s.Shed++
	default:
		t.Failed++
		s.Failed++
	}
}

// thresholdsFailed is k6's exit status.
const thresholdsFailed = 99

// judge returns what is wrong. k6 checks the thresholds; beyond them, everything the
// oracle found must be within a bound, and it must have had something to judge.
func (r *result) judge(lab state) []string {
	if r.MustFail {
		return r.judgeProof(lab)
	}
	var wrong []string
	add := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	wrong = append(wrong, r.Failed...)
	if r.Status != 0 && r.Status != thresholdsFailed {
		add("k6 ended with status %d", r.Status)
	}
	for _, c := range r.Checks {
		if !c.OK {
			add("threshold: %s %s", c.Metric, c.Expr)
		}
	}
	for _, l := range r.Report {
		b := r.bound(l)
		where := fmt.Sprintf("%s, rule %s", l.Region, l.Rule)
		if l.Phase != "" {
			where += ", phase " + l.Phase
		}
		switch {
		case b == nil && (l.Overadmitted > 0 || l.WronglyRefused > 0 || l.RetryWrong > 0):
			add("%s: %d over-admitted, %d wrongly refused, %d times Retry-After wrong; the bound is 0", where, l.Overadmitted, l.WronglyRefused, l.RetryWrong)
		case b == nil && l.Refused > l.Unjudged && l.RetryChecked == 0:
			add("%s: no Retry-After of %d refusals was judged, so none is proven", where, l.Refused)
		case b == nil && l.Unknown > l.Admitted+l.Refused, b == nil && l.Unjudged > (l.Admitted+l.Refused)/2:
			add("%s: of %d admitted and %d refused, %d were not judged, and %d had no answer: too many for a proof", where, l.Admitted, l.Refused, l.Unjudged, l.Unknown)
		case b != nil && l.Worst != nil && l.Worst.Percent > b.Percent:
			add("%s: a window of %s was exceeded by %s; the bound is %s", where, l.Worst.Window, percent(l.Worst.Percent), percent(b.Percent))
		case b != nil && l.Worst == nil && l.Overadmitted > 0:
			add("%s: %d over-admitted, and no window says how far", where, l.Overadmitted)
		}
	}
	for _, region := range lab.Regions {
		if !slices.ContainsFunc(r.Report, func(l line) bool { return l.Region == region.Name && l.Admitted > 0 }) && !r.passed(region.Name) {
			add("%s: nothing was admitted, so nothing is proven", region.Name)
		}
	}
	wrong = append(wrong, r.untried()...)
	wrong = append(wrong, r.judgePhases(lab)...)
	for _, b := range r.Bounds {
		if b.Fallback && r.Fallback[b.Region] == 0 {
			add("%s: no decision was made without Redis, so the fault had no effect", b.Region)
		}
		admitted := 0
		for _, l := range r.Report {
			if l.Region == b.Region && l.Rule == b.Rule && l.Phase == b.Phases[0] {
				admitted += l.Admitted
			}
		}
		if admitted < b.Least {
			add("%s, rule %s, phase %s: %d admitted; the bound is %d at least", b.Region, b.Rule, b.Phases[0], admitted, b.Least)
		}
	}
	return wrong
}

// judgeProof is satisfied if the oracle is not.
func (r *result) judgeProof(lab state) []string {
	wrong := slices.Clone(r.Failed)
	if r.Status != thresholdsFailed {
		wrong = append(wrong, fmt.Sprintf("k6 should have failed its thresholds, and ended with status %d", r.Status))
	}
	for _, region := range lab.Regions {
		if !slices.ContainsFunc(r.Report, func(l line) bool { return l.Region == region.Name && l.Overadmitted > 0 }) {
			wrong = append(wrong, region.Name+": the oracle did not object to a rule that limits nothing")
		}
	}
	return wrong
}

// untried names the limits that no client reached: that they held proves nothing. Where
// more may pass temporarily, the bound says how many must.
func (r *result) untried() []string {
	type limit struct{ region, rule string }
	refused, bounded := map[limit]int{}, map[limit]bool{}
	var order []limit
	for _, l := range r.Report {
		at := limit{l.Region, l.Rule}
		if _, known := refused[at]; !known {
			order = append(order, at)
		}
		refused[at] += l.Refused
		b := r.bound(l)
		bounded[at] = bounded[at] || b != nil && !b.Late
	}
	var wrong []string
	for _, at := range order {
		if refused[at] == 0 && !bounded[at] {
			why := fmt.Sprintf("%s, rule %s: no request was refused, so the limit is not proven", at.region, at.rule)
			if short := r.Short(); short != "" {
				why += ": " + short
			}
			wrong = append(wrong, why)
		}
	}
	return wrong
}

// judgePhases requires every phase that the script declares, with traffic in every
// region. k6 does not mind a script that ends in the middle.
func (r *result) judgePhases(lab state) []string {
	var wrong []string
	for _, p := range r.Phases {
		if !slices.Contains(r.Planned, p.Name) {
			wrong = append(wrong, fmt.Sprintf("phase %s: the script does not declare it", p.Name))
		}
	}
	for _, name := range r.Planned {
		if !slices.ContainsFunc(r.Phases, func(p phase) bool { return p.Name == name }) {
			wrong = append(wrong, fmt.Sprintf("phase %s: the script never reached it", name))
			continue
		}
		var silent []string
		for _, region := range lab.Regions {
			broken := slices.ContainsFunc(r.Bounds, func(b bound) bool { return b.Region == region.Name && slices.Contains(b.Phases, name) })
			heard := slices.ContainsFunc(r.Report, func(l line) bool {
				return (l.Region == region.Name || l.Region == everywhere) && l.Phase == name && l.Admitted > 0
			})
			if !heard && !broken {
				silent = append(silent, region.Name)
			}
		}
		if silent != nil {
			wrong = append(wrong, fmt.Sprintf("phase %s: nothing was admitted in %s, so nothing is proven", name, strings.Join(silent, ", ")))
		}
	}
	return wrong
}

// passed reports whether anything passed in a region under rules that regions share.
func (r *result) passed(region string) bool {
	shared := slices.ContainsFunc(r.Report, func(l line) bool { return l.Region == everywhere })
	return shared && slices.ContainsFunc(r.Traffic, func(t traffic) bool { return t.Region == region && t.Passed > 0 })
}

// bound returns a line's bound; nil is 0. More may pass because edges decide on their
// own: where none did, nothing more may, unless regions hear late of each other.
func (r *result) bound(l line) *bound {
	for i, b := range r.Bounds {
		if b.covers(l) && (b.Late || r.Fallback[b.Region] > 0) {
			return &r.Bounds[i]
		}
	}
	return nil
}

func (b *bound) covers(l line) bool {
	return b.Rule == l.Rule && b.Region == l.Region && slices.Contains(b.Phases, l.Phase)
}
