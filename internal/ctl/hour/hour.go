// Package hour asks Prometheus what edges counted in the last hour. Restarts of edges, whose own counts
// begin again, do not change it.
package hour

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

	"github.com/spf13/cobra"

	"github.com/weir-edge/weir/internal/ctl/command"
	"github.com/weir-edge/weir/internal/ctl/fleet"
	"github.com/weir-edge/weir/internal/ctl/term"
)

// Last is the last hour.
type Last struct {
	// Configured: there is a Prometheus to ask. Without one nothing is known.
	Configured bool      `json:"configured"`
	From       time.Time `json:"from,omitzero"`

	program *command.Program
	now     time.Time
	regions string // selects them
	err     error  // the first
}

const (
	// Minutes are the values of a series.
	Minutes = 60
	// longestHistory bounds an answer of Prometheus.
	longestHistory = 64 << 20
)

func Flag(p *command.Program, c *cobra.Command) {
	c.Flags().StringVar(&p.Prometheus, "prometheus", "", "`URL` of a Prometheus that scrapes all edges, for the counts of the last hour")
}

// Check refuses an address that is none.
func Check(address string) error {
	u, err := url.Parse(address)
	if address != "" && (err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "") {
		return term.Misused("--prometheus: must be an address such as http://prometheus.example.com:9090")
	}
	return nil
}

// Of returns the last hour of these regions.
func Of(p *command.Program, k *fleet.Kind, names []string) Last {
	if p.Prometheus == "" {
		return Last{}
	}
	targets, err := p.Targets(k, names)
	if err != nil {
		return Last{err: err}
	}
	now := p.Now().UTC().Truncate(time.Second)
	quoted := fleet.Map(command.RegionNames(targets), regexp.QuoteMeta)
	return Last{Configured: true, From: now.Add(-Minutes * time.Minute), program: p, now: now, regions: fmt.Sprintf("region=~%q", strings.Join(quoted, "|"))}
}

// Err returns why something is missing.
func (l *Last) Err() error { return l.err }

// Total tells how much a counter grew, by these labels. only selects some of its series, as
// `,reason!="client"`.
func (l *Last) Total(ctx context.Context, counter, only, by string, tell func(labels map[string]string, n float64)) {
	for _, s := range l.query(ctx, "query", url.Values{"query": {fmt.Sprintf("sum by (%s) (increase(%s{%s%s}[1h]))", by, counter, l.regions, only)}, "time": {l.now.Format(time.RFC3339)}}) {
		tell(s.Metric, s.Value.value())
	}
}

// PerSecond tells how much a counter grew per second in each minute, the oldest first, as Total does.
func (l *Last) PerSecond(ctx context.Context, counter, only, by string, tell func(labels map[string]string, rates []float64)) {
	for _, s := range l.query(ctx, "query_range", url.Values{
		"query": {fmt.Sprintf("sum by (%s) (rate(%s{%s%s}[2m]))", by, counter, l.regions, only)}, "step": {"60"},
		"start": {l.From.Add(time.Minute).Format(time.RFC3339)}, "end": {l.now.Format(time.RFC3339)},
	}) {
		rates := make([]float64, Minutes)
		for _, v := range s.Values {
			if i := int(v.at().Sub(l.From).Round(time.Minute)/time.Minute) - 1; i >= 0 && i < Minutes {
				rates[i] = math.Round(1000*v.value()) / 1000
			}
		}
		tell(s.Metric, rates)
	}
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

// query asks Prometheus (https://prometheus.io/docs/prometheus/latest/querying/api/), unless something
// failed before.
func (l *Last) query(ctx context.Context, path string, q url.Values) (list []series) {
	if l.Configured && l.err == nil {
		if list, l.err = query(ctx, l.program, path, q); l.err != nil {
			shown := l.program.Prometheus
			if u, err := url.Parse(shown); err == nil {
				shown = u.Redacted()
			}
			l.err = term.Failed("Prometheus at %s: %w; is that its address?", shown, l.err)
		}
	}
	return list
}

func query(ctx context.Context, p *command.Program, path string, q url.Values) ([]series, error) {
	ctx, cancel := context.WithTimeout(ctx, p.Timeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(p.Prometheus, "/")+"/api/v1/"+path+"?"+q.Encode(), nil)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		if u, ok := err.(*url.Error); ok { // whose text has the whole query
			err = u.Err
		}
		return nil, err
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
		return nil, fmt.Errorf("%s: %w", resp.Status, err)
	case answer.Status != "success":
		return nil, fmt.Errorf("%s: %s", resp.Status, answer.Error)
	}
	return answer.Data.Result, nil
}
