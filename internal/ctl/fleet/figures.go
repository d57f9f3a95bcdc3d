package fleet

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"time"

	dto "github.com/prometheus/client_model/go"

	"github.com/weir-edge/weir/internal/adminapi"
	"github.com/weir-edge/weir/internal/policy"
	"github.com/weir-edge/weir/pkg/region/consul"
	"github.com/weir-edge/weir/pkg/shedder"
)

// Figures are an edge's counts and measurements at one moment.
type Figures struct {
	at          time.Time
	requests    map[string]float64 // by code class
	limited     float64
	limitedBy   map[string]float64 // rule, if asked for
	shadowBy    map[string]float64 // likewise
	took        Durations
	InFlight    float64
	Utilization float64 // the highest signal of any upstream group
	Level       float64 // the highest of any group, as weir_shed_level
	shed        float64 // because the site is overloaded
	Off         bool    // the shedder's kill switch is on
	StoreUp     *bool   // nil if unknown
	Rules       string  // versions
	Shedder     string
	Policy      string
	Ahead       *time.Duration // of this machine's clock, give or take a second; nil: it does not say
}

func (f *Figures) Version(k *Kind) string {
	return map[string]string{"rules": f.Rules, "shedder": f.Shedder, "policy": f.Policy}[k.Name]
}

// readers extract the figures from metrics, by name.
var readers = map[string]func(*Figures, *dto.Metric){
	requestsMetric:                func(f *Figures, m *dto.Metric) { f.requests[label(m, "code_class")] += value(m) },
	durationsMetric:               func(f *Figures, m *dto.Metric) { f.took.add(m.GetHistogram()) },
	"weir_requests_limited_total": func(f *Figures, m *dto.Metric) { f.limited += value(m) },
	DecisionsMetric: func(f *Figures, m *dto.Metric) {
		switch outcome := label(m, "outcome"); {
		case value(m) == 0:
		case outcome == "limited":
			f.limitedBy[label(m, "rule")] += value(m)
		case outcome == "shadow_limited":
			f.shadowBy[label(m, "rule")] += value(m)
		}
	},
	// Refusals by a behavior policy count, in a policy's trial, like those by rules.
	"weir_behavior_requests_total": func(f *Figures, m *dto.Metric) {
		if effect := label(m, "effect"); label(m, "mode") == policy.Enforce && (effect == "refused" || effect == "crowded") {
			f.limited += value(m)
		}
	},
	"weir_inflight":    func(f *Figures, m *dto.Metric) { f.InFlight += value(m) },
	"weir_utilization": func(f *Figures, m *dto.Metric) { f.Utilization = max(f.Utilization, value(m)) },
	"weir_shed_level":  func(f *Figures, m *dto.Metric) { f.Level = max(f.Level, value(m)) },
	"weir_shed_total": func(f *Figures, m *dto.Metric) {
		if label(m, "reason") != shedder.KindClient { // one client has too many in flight
			f.shed += value(m)
		}
	},
	"weir_store_up":   func(f *Figures, m *dto.Metric) { up := value(m) == 1; f.StoreUp = &up },
	"weir_rules_info": func(f *Figures, m *dto.Metric) { f.Rules = info(m, f.Rules) },
	"weir_shedder_info": func(f *Figures, m *dto.Metric) {
		f.Shedder, f.Off = info(m, f.Shedder), label(m, "enabled") == "false"
	},
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

var figureNames = slices.DeleteFunc(slices.Sorted(maps.Keys(readers)), func(name string) bool { return name == DecisionsMetric })

// Figures reads those of a node, and of the metrics in more.
func (a *Admin) Figures(ctx context.Context, n consul.Node, more ...string) (*Figures, error) {
	f := &Figures{requests: map[string]float64{}, limitedBy: map[string]float64{}, shadowBy: map[string]float64{}}
	err := a.metrics(ctx, n, append(more, figureNames...), f.read, func(h http.Header) {
		if at, err := http.ParseTime(h.Get("Date")); err == nil {
			ahead := time.Until(at.Add(time.Second / 2)) // a date is whole seconds
			f.Ahead = &ahead
		}
	})
	f.at = time.Now()
	return f, err
}

func (f *Figures) read(families families) error {
	if err := families.ofEdge(); err != nil {
		return err
	}
	for name, read := range readers {
		for _, m := range families[name].GetMetric() {
			read(f, m)
		}
	}
	return nil
}

func (f *Figures) total() (sum float64) {
	for _, n := range f.requests {
		sum += n
	}
	return sum
}

// Interval is what happened at a node between two looks.
type Interval struct {
	Rate     float64 // requests per second
	Requests float64
	Limited  float64
	Shed     bool // the level or a cap refused requests
}

// Since returns what happened since before; without it, nothing is known.
func (f *Figures) Since(before *Figures) Interval {
	if before == nil {
		return Interval{}
	}
	grown := f.grown(before)
	i := Interval{Requests: grown.Requests, Limited: grown.Limited, Shed: f.shed > before.shed}
	if took := f.at.Sub(before.at).Seconds(); took > 0 {
		i.Rate = i.Requests / took
	}
	return i
}
