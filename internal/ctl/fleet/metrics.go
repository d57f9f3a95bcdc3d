package fleet

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"google.golang.org/protobuf/encoding/protodelim"

	"github.com/weir-edge/weir/internal/adminapi"
	"github.com/weir-edge/weir/pkg/region/consul"
)

// acceptMetrics requests the format that takes a third of the time to parse.
var acceptMetrics = string(expfmt.NewFormat(expfmt.TypeProtoDelim)) + ", text/plain;q=0.5"

// families are metrics by name.
type families map[string]*dto.MetricFamily

// metrics reads those of these names: the rest may be a hundred times as much.
func (a *Admin) metrics(ctx context.Context, n consul.Node, names []string, read func(families) error, heads ...func(http.Header)) error {
	var form expfmt.Format
	return a.do(ctx, http.MethodGet, n, adminapi.PathMetrics, url.Values{"name[]": names}, func(body io.Reader) error {
		all, err := readFamilies(body, form)
		if err != nil {
			return err
		}
		return read(all)
	}, append(heads, func(h http.Header) { form = expfmt.ResponseFormat(h) })...)
}

func readFamilies(body io.Reader, form expfmt.Format) (families, error) {
	if form.FormatType() != expfmt.TypeProtoDelim {
		parser := expfmt.NewTextParser(model.UTF8Validation)
		all, err := parser.TextToMetricFamilies(body)
		if err != nil {
			return nil, fmt.Errorf("are not metrics: %w; is this an edge?", err)
		}
		return all, nil
	}
	// Not expfmt.NewDecoder, which allocates whatever length an answer claims.
	all, in, bounded := families{}, bufio.NewReader(body), protodelim.UnmarshalOptions{MaxSize: maxAdminAnswer}
	for {
		var f dto.MetricFamily
		err := bounded.UnmarshalFrom(in, &f)
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, fmt.Errorf("are not metrics: %w", err)
		}
		all[f.GetName()] = &f
	}
}

// ofEdge fails without the metric that every edge has.
func (all families) ofEdge() error {
	if len(all[requestsMetric].GetMetric()) == 0 {
		return fmt.Errorf("has no %s among its metrics; is this an edge?", requestsMetric)
	}
	return nil
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

// value returns the value of a counter, or of a metric without a type.
func value(m *dto.Metric) float64 {
	switch {
	case m.Counter != nil:
		return m.Counter.GetValue()
	case m.Gauge != nil:
		return m.Gauge.GetValue()
	}
	return m.GetUntyped().GetValue()
}
