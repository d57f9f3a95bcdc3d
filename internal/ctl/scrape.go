package ctl

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/weir-edge/weir/pkg/region"
)

// The metrics that a canary is judged by.
const (
	requestsMetric = "weir_requests_total"
	limitedMetric  = "weir_requests_limited_total"
	rulesMetric    = "weir_rules_info"
)

// sample is what a node counted at a moment.
type sample struct {
	version  string             // of the rules that it runs
	requests map[string]float64 // by code class
	limited  float64
}

func (a *admin) scrape(ctx context.Context, n region.Node) (*sample, error) {
	s := &sample{requests: map[string]float64{}}
	return s, a.do(ctx, http.MethodGet, n, "/metrics", nil, s.read)
}

func (s *sample) read(body io.Reader) error {
	text, err := relevant(body)
	if err != nil {
		return err
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(text)
	if err != nil {
		return fmt.Errorf("are not metrics: %w", err)
	}
	for _, m := range families[requestsMetric].GetMetric() {
		s.requests[label(m, "code_class")] = value(m)
	}
	for _, m := range families[limitedMetric].GetMetric() {
		s.limited = value(m)
	}
	for _, m := range families[rulesMetric].GetMetric() {
		if value(m) == 1 {
			s.version = label(m, "version")
		}
	}
	if len(s.requests) == 0 {
		return fmt.Errorf("has no %s among its metrics; is this an edge?", requestsMetric)
	}
	return nil
}

// relevant leaves the lines that are needed: the rest may be a hundred times as much.
func relevant(body io.Reader) (io.Reader, error) {
	var text bytes.Buffer
	in := bufio.NewScanner(body)
	in.Buffer(nil, 1<<20)
	for in.Scan() {
		line := in.Text()
		name := strings.TrimPrefix(strings.TrimPrefix(line, "# TYPE "), "# HELP ")
		for _, wanted := range []string{requestsMetric, limitedMetric, rulesMetric} {
			if rest, ok := strings.CutPrefix(name, wanted); ok && rest != "" && (rest[0] == '{' || rest[0] == ' ') {
				text.WriteString(line + "\n")
			}
		}
	}
	return &text, in.Err()
}

func label(m *dto.Metric, name string) string {
	for _, l := range m.GetLabel() {
		if l.GetName() == name {
			return l.GetValue()
		}
	}
	return ""
}

// value is that of a counter, or of what does not say its type.
func value(m *dto.Metric) float64 {
	switch {
	case m.Counter != nil:
		return m.Counter.GetValue()
	case m.Gauge != nil:
		return m.Gauge.GetValue()
	}
	return m.GetUntyped().GetValue()
}

// traffic is what happened in a group of nodes since the first look at each.
type traffic struct {
	Requests float64 `json:"requests"`
	Limited  float64 `json:"limited"`
	Errors   float64 `json:"errors_5xx"`
}

func (t *traffic) limitedShare() float64 { return ratio(t.Limited, t.Requests) }
func (t *traffic) errorShare() float64   { return ratio(t.Errors, t.Requests) }

func ratio(part, whole float64) float64 {
	if whole == 0 {
		return 0
	}
	return part / whole
}

// tally adds up the traffic of a group of nodes. A counter that is lower than before
// belongs to a node that began anew, and all it counts is new.
type tally struct {
	total traffic
	last  map[string]*sample // by node
}

func (t *tally) add(node string, now *sample) {
	if t.last == nil {
		t.last = map[string]*sample{}
	}
	before := t.last[node]
	t.last[node] = now
	if before == nil {
		return
	}
	for class, n := range now.requests {
		grown := growth(before.requests[class], n)
		t.total.Requests += grown
		if class == "5xx" {
			t.total.Errors += grown
		}
	}
	t.total.Limited += growth(before.limited, now.limited)
}

func growth(before, now float64) float64 {
	if before <= now {
		return now - before
	}
	return now
}
