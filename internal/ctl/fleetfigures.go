package ctl

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/weir-edge/weir/pkg/region"
)

// figures are what an edge counts and measures, at a moment.
type figures struct {
	at          time.Time
	requests    float64
	limited     float64
	inFlight    float64
	utilization float64 // the highest signal of any upstream group
	level       float64 // the highest of any group, as weir_shed_level
	storeUp     *bool   // nil: it does not say
	rules       string  // versions
	shedder     string
}

// wantedFigures are the metrics that figures are read from.
var wantedFigures = []string{
	requestsMetric, limitedMetric, rulesMetric,
	"weir_shedder_info", "weir_inflight", "weir_utilization", "weir_shed_level", "weir_store_up",
}

func (a *admin) figures(ctx context.Context, n region.Node) (*figures, error) {
	f := &figures{}
	err := a.do(ctx, http.MethodGet, n, "/metrics", nil, f.read)
	f.at = time.Now()
	return f, err
}

func (f *figures) read(body io.Reader) error {
	var text bytes.Buffer
	in := bufio.NewScanner(body)
	in.Buffer(nil, 1<<20)
	for in.Scan() {
		line := in.Text()
		name := strings.TrimPrefix(line, "# TYPE ")
		for _, wanted := range wantedFigures {
			if rest, ok := strings.CutPrefix(name, wanted); ok && rest != "" && (rest[0] == '{' || rest[0] == ' ') {
				text.WriteString(line + "\n")
			}
		}
	}
	if err := in.Err(); err != nil {
		return err
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(&text)
	if err != nil {
		return fmt.Errorf("are not metrics: %w", err)
	}
	if len(families[requestsMetric].GetMetric()) == 0 {
		return fmt.Errorf("has no %s among its metrics; is this an edge?", requestsMetric)
	}
	for _, m := range families[requestsMetric].GetMetric() {
		f.requests += value(m)
	}
	for _, m := range families[limitedMetric].GetMetric() {
		f.limited += value(m)
	}
	for _, m := range families["weir_inflight"].GetMetric() {
		f.inFlight += value(m)
	}
	for _, m := range families["weir_utilization"].GetMetric() {
		f.utilization = max(f.utilization, value(m))
	}
	for _, m := range families["weir_shed_level"].GetMetric() {
		f.level = max(f.level, value(m))
	}
	for _, m := range families["weir_store_up"].GetMetric() {
		up := value(m) == 1
		f.storeUp = &up
	}
	for _, m := range families[rulesMetric].GetMetric() {
		if value(m) == 1 {
			f.rules = label(m, "version")
		}
	}
	for _, m := range families["weir_shedder_info"].GetMetric() {
		if value(m) == 1 {
			f.shedder = label(m, "version")
		}
	}
	return nil
}

// interval is what happened at a node between two looks.
type interval struct {
	Rate     float64 // requests a second
	Requests float64
	Limited  float64
}

// since is what happened after before; nothing is known of it without one. A counter that
// is lower than before belongs to a node that began anew.
func (f *figures) since(before *figures) interval {
	if before == nil {
		return interval{}
	}
	i := interval{Requests: growth(before.requests, f.requests), Limited: growth(before.limited, f.limited)}
	if took := f.at.Sub(before.at).Seconds(); took > 0 {
		i.Rate = i.Requests / took
	}
	return i
}
