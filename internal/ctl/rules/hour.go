package rules

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/weir-edge/weir/internal/ctl/command"
	"github.com/weir-edge/weir/internal/ctl/fleet"
	"github.com/weir-edge/weir/internal/ctl/kinds"
	"github.com/weir-edge/weir/internal/ctl/term"
)

// Hour is what Prometheus has of the last hour. It survives restarts of edges, whose own counts begin
// again.
type Hour struct {
	// Configured: there is a Prometheus to ask. Without one there are no rules.
	Configured bool      `json:"configured"`
	From       time.Time `json:"from,omitzero"`
	// Rules are those that decided something, by their IDs.
	Rules map[string]*RuleHour `json:"rules"`
}

// RuleHour is the last hour of one rule.
type RuleHour struct {
	Total fleet.Decided `json:"total"`
	// PerSecond are the decisions per second in each minute of it, the oldest first.
	PerSecond []float64 `json:"per_second"`
}

const (
	minutes = 60
	// longestHistory bounds an answer of Prometheus.
	longestHistory = 64 << 20
)

func CheckPrometheus(address string) error {
	u, err := url.Parse(address)
	if address != "" && (err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "") {
		return term.Misused("--prometheus: must be an address such as http://prometheus.example.com:9090")
	}
	return nil
}

// LastHour asks Prometheus for the last hour of these regions.
func LastHour(ctx context.Context, p *command.Program, names []string) (*Hour, error) {
	h := &Hour{Configured: p.Prometheus != "", Rules: map[string]*RuleHour{}}
	if !h.Configured {
		return h, nil
	}
	targets, err := p.Targets(kinds.Rules, names)
	if err != nil {
		return nil, err
	}
	quoted := fleet.Map(command.RegionNames(targets), regexp.QuoteMeta)
	of := fmt.Sprintf(fleet.DecisionsMetric+"{region=~%q}", strings.Join(quoted, "|"))
	now := p.Now().UTC().Truncate(time.Second)
	h.From = now.Add(-minutes * time.Minute)
	ctx, cancel := context.WithTimeout(ctx, p.Timeout)
	defer cancel()
	totals, err := query(ctx, p.Prometheus, "query", url.Values{"query": {"sum by (rule, outcome) (increase(" + of + "[1h]))"}, "time": {now.Format(time.RFC3339)}})
	if err != nil {
		return nil, err
	}
	for _, s := range totals {
		h.rule(s.Metric["rule"]).Total.Add(s.Metric["outcome"], s.Value.value())
	}
	rates, err := query(ctx, p.Prometheus, "query_range", url.Values{
		"query": {"sum by (rule) (rate(" + of + "[2m]))"}, "step": {"60"},
		"start": {h.From.Add(time.Minute).Format(time.RFC3339)}, "end": {now.Format(time.RFC3339)},
	})
	if err != nil {
		return nil, err
	}
	for _, s := range rates {
		r := h.rule(s.Metric["rule"])
		for _, v := range s.Values {
			if i := int(v.at().Sub(h.From).Round(time.Minute)/time.Minute) - 1; i >= 0 && i < minutes {
				r.PerSecond[i] = math.Round(1000*v.value()) / 1000
			}
		}
	}
	return h, nil
}

func (h *Hour) rule(id string) *RuleHour {
	if h.Rules[id] == nil {
		h.Rules[id] = &RuleHour{PerSecond: make([]float64, minutes)}
	}
	return h.Rules[id]
}

// point is a time and a value, as Prometheus writes them.
type point [2]any

func (p point) at() time.Time {
	seconds, _ := p[0].(float64)
	return time.UnixMilli(int64(1000 * seconds))
}

// value is 0 for what is no number, as 0/0.
func (p point) value() float64 {
	text, _ := p[1].(string)
	v, err := strconv.ParseFloat(text, 64)
	if err != nil || math.IsNaN(v) || math.IsInf(v, 0) {
		return 0
	}
	return v
}

type series struct {
	Metric map[string]string
	Value  point
	Values []point
}

// query asks Prometheus (https://prometheus.io/docs/prometheus/latest/querying/api/).
func query(ctx context.Context, address, path string, q url.Values) (list []series, err error) {
	shown := address
	if u, err := url.Parse(address); err == nil {
		shown = u.Redacted()
	}
	failed := func(err error) error {
		return term.Failed("Prometheus at %s: %w; is that its address?", shown, err)
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(address, "/")+"/api/v1/"+path+"?"+q.Encode(), nil)
	if err != nil {
		return nil, failed(err)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		if u, ok := err.(*url.Error); ok { // whose text has the whole query
			err = u.Err
		}
		return nil, failed(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, longestHistory))
	var answer struct {
		Status, Error string
		Data          struct{ Result []series }
	}
	if err == nil {
		err = json.Unmarshal(body, &answer)
	}
	switch {
	case err != nil:
		return nil, failed(fmt.Errorf("%s: %w", resp.Status, err))
	case answer.Status != "success":
		return nil, failed(fmt.Errorf("%s: %s", resp.Status, answer.Error))
	}
	return answer.Data.Result, nil
}
