package fleet

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/weir-edge/weir/internal/adminapi"
	"github.com/weir-edge/weir/internal/policy"
	"github.com/weir-edge/weir/pkg/region/consul"
)

// Figures are what an edge counts and measures, at a moment.
type Figures struct {
	at          time.Time
	requests    map[string]float64 // by code class
	limited     float64
	took        Durations
	InFlight    float64
	Utilization float64 // the highest signal of any upstream group
	Level       float64 // the highest of any group, as weir_shed_level
	StoreUp     *bool   // nil: it does not say
	Rules       string  // versions
	Shedder     string
	Policy      string
}

// Version returns that of the documents of a kind.
func (f *Figures) Version(k *Kind) string {
	return map[string]string{"rules": f.Rules, "shedder": f.Shedder, "policy": f.Policy}[k.Name]
}

// readers take the metrics that figures consist of, by name.
var readers = map[string]func(*Figures, *dto.Metric){
	requestsMetric:                func(f *Figures, m *dto.Metric) { f.requests[label(m, "code_class")] += value(m) },
	durationsMetric:               func(f *Figures, m *dto.Metric) { f.took.add(m.GetHistogram()) },
	"weir_requests_limited_total": func(f *Figures, m *dto.Metric) { f.limited += value(m) },
	// What a behavior policy refuses counts for a trial of one as what a rule limits.
	"weir_behavior_requests_total": func(f *Figures, m *dto.Metric) {
		if effect := label(m, "effect"); label(m, "mode") == policy.Enforce && (effect == "refused" || effect == "crowded") {
			f.limited += value(m)
		}
	},
	"weir_inflight":             func(f *Figures, m *dto.Metric) { f.InFlight += value(m) },
	"weir_utilization":          func(f *Figures, m *dto.Metric) { f.Utilization = max(f.Utilization, value(m)) },
	"weir_shed_level":           func(f *Figures, m *dto.Metric) { f.Level = max(f.Level, value(m)) },
	"weir_store_up":             func(f *Figures, m *dto.Metric) { up := value(m) == 1; f.StoreUp = &up },
	"weir_rules_info":           func(f *Figures, m *dto.Metric) { f.Rules = info(m, f.Rules) },
	"weir_shedder_info":         func(f *Figures, m *dto.Metric) { f.Shedder = info(m, f.Shedder) },
	"weir_behavior_policy_info": func(f *Figures, m *dto.Metric) { f.Policy = info(m, f.Policy) },
}

const (
	requestsMetric  = "weir_requests_total" // the one that every edge has
	durationsMetric = "weir_request_seconds"
)

// add adds a histogram. Its buckets count as those of Durations do.
func (d *Durations) add(h *dto.Histogram) {
	for _, b := range h.GetBucket() {
		if i := slices.Index(adminapi.RequestBounds[:], b.GetUpperBound()); i >= 0 {
			d[i] += float64(b.GetCumulativeCount())
		}
	}
	d[len(d)-1] += float64(h.GetSampleCount())
}

func (a *Admin) Figures(ctx context.Context, n consul.Node) (*Figures, error) {
	f := &Figures{requests: map[string]float64{}}
	err := a.do(ctx, http.MethodGet, n, adminapi.PathMetrics, nil, f.read)
	f.at = time.Now()
	return f, err
}

func (f *Figures) read(body io.Reader) error {
	families, err := readMetrics(body, func(name string) bool {
		return readers[name] != nil || strings.HasPrefix(name, durationsMetric+"_")
	})
	if err != nil {
		return err
	}
	if len(families[requestsMetric].GetMetric()) == 0 {
		return fmt.Errorf("has no %s among its metrics; is this an edge?", requestsMetric)
	}
	for name, read := range readers {
		for _, m := range families[name].GetMetric() {
			read(f, m)
		}
	}
	return nil
}

// readMetrics parses the wanted metrics: the rest may be a hundred times as much.
func readMetrics(body io.Reader, wanted func(name string) bool) (map[string]*dto.MetricFamily, error) {
	var text bytes.Buffer
	in := bufio.NewScanner(body)
	in.Buffer(nil, 1<<20)
	for in.Scan() {
		line := strings.TrimPrefix(in.Text(), "# TYPE ")
		if end := strings.IndexAny(line, "{ "); end > 0 && wanted(line[:end]) {
			text.WriteString(in.Text() + "\n")
		}
	}
	if err := in.Err(); err != nil {
		return nil, err
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(&text)
	if err != nil {
		return nil, fmt.Errorf("are not metrics: %w", err)
	}
	return families, nil
}

func (f *Figures) total() (sum float64) {
	for _, n := range f.requests {
		sum += n
	}
	return sum
}

// info returns the version of an info metric whose value is 1.
func info(m *dto.Metric, other string) string {
	if value(m) == 1 {
		return label(m, "version")
	}
	return other
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

// Interval is what happened at a node between two looks.
type Interval struct {
	Rate     float64 // requests a second
	Requests float64
	Limited  float64
}

// Since is what happened after before; nothing is known of it without one.
func (f *Figures) Since(before *Figures) Interval {
	if before == nil {
		return Interval{}
	}
	grown := f.grown(before)
	i := Interval{Requests: grown.Requests, Limited: grown.Limited}
	if took := f.at.Sub(before.at).Seconds(); took > 0 {
		i.Rate = i.Requests / took
	}
	return i
}
