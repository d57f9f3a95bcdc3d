package dashboards

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Span is the time that a dashboard shows.
type Span struct {
	From, To time.Time
	Window   time.Duration // replaces $__rate_interval: four scrapes or more
}

// Except lists what may be empty.
type Except struct {
	Folded bool              // collapsed rows: not every site has their metrics
	Panels map[string]string // such as "weir-fleet/26", and the reason
}

// QueryAll runs every query of every panel, variable and annotation against a
// Prometheus, as Grafana would, and fails t for each that returns nothing, or nothing
// but NaN and Inf. If there are several regions, it queries all at once, and then each
// separately.
//
// Queries of panels that show the current state run at the end of the span, as in
// Grafana; rates look back by Window from there, so load must have lasted until then, and
// every target must have been scraped: Scraped returns such a moment.
func QueryAll(t testing.TB, promURL string, over Span, except Except) {
	t.Helper()
	files, err := Files()
	if err != nil {
		t.Fatal(err)
	}
	p := prometheus{url: strings.TrimSuffix(promURL, "/"), span: over}
	known := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		page, err := parsePage(files[name])
		if err != nil {
			t.Fatal(err)
		}
		choices, err := p.choices(t.Context(), page)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		ask := func(what, expr string, instant bool, why string) {
			t.Helper()
			for i, values := range choices {
				if i > 0 && !strings.Contains(expr, "$region") {
					return
				}
				where := fmt.Sprintf("%s (region %s): %s", page.Title, values["region"], what)
				n, err := p.samples(t.Context(), strings.ReplaceAll(expr, orZero, andZero), instant, values)
				switch {
				case err != nil:
					t.Errorf("%s: %v", where, err)
				case n == 0 && why == "":
					t.Errorf("%s: no data: %s", where, expr)
				case n == 0:
					t.Logf("%s: no data: %s", where, why)
				}
			}
		}
		for _, a := range page.Annotations.List {
			ask("annotation "+a.Name, a.Expr, false, "")
		}
		panels, folded := page.graphs()
		if !except.Folded {
			panels = append(panels, folded...)
		}
		for _, panel := range panels {
			id := page.UID + "/" + strconv.Itoa(panel.ID)
			known[id] = true
			for _, target := range panel.Targets {
				ask(fmt.Sprintf("panel %d %q, query %s", panel.ID, panel.Title, target.RefID), target.Expr, target.Instant, except.Panels[id])
			}
		}
	}
	for id := range except.Panels {
		if !known[id] {
			t.Errorf("%s may be empty, but is not a panel", id)
		}
	}
}

// Panels show 0 for what was never counted. QueryAll requires a count, or a query for a missing
// metric would pass.
const orZero, andZero = " or 0 * ", " and 0 * "

// Far more than a busy machine needs: only failures ever wait this long.
const awaitLimit = 2 * time.Minute

// settle is more than two scrapes of any test: an instant shows nothing older.
const settle = 5 * time.Second

var window = regexp.MustCompile(`\[(\d+s)\]`)

// reach returns how far back a query looks: a result that much later depends on nothing earlier.
func reach(query string) time.Duration {
	longest := settle
	for _, m := range window.FindAllStringSubmatch(query, -1) {
		if d, err := time.ParseDuration(m[1]); err == nil {
			longest = max(longest, d)
		}
	}
	return longest
}

// Await waits until a query without variables returns a result, at some moment after since, that
// depends on nothing earlier. Its windows are in seconds, such as [8s].
func Await(t testing.TB, promURL string, since time.Time, what, query string) {
	t.Helper()
	p := prometheus{url: strings.TrimSuffix(promURL, "/"), span: Span{From: since.Add(reach(query))}}
	for began := time.Now(); ; {
		n, err := 0, error(nil)
		if p.span.To = time.Now(); p.span.To.After(p.span.From) {
			n, err = p.samples(t.Context(), query, false, nil)
		}
		if err == nil && n > 0 {
			return
		}
		if time.Since(began) > awaitLimit || t.Context().Err() != nil {
			t.Fatalf("%s: no answer, %v: %s", what, err, query)
		}
		<-time.After(200 * time.Millisecond)
	}
}

// Scraped waits for a moment by which every target was scraped at least twice within the window,
// so that rates have values, and at which every query of also has a result. It returns that
// moment. On a busy machine scrapes time out.
func Scraped(t testing.TB, promURL string, window time.Duration, also ...string) (moment time.Time) {
	t.Helper()
	p := prometheus{url: strings.TrimSuffix(promURL, "/")}
	query := fmt.Sprintf("min(sum_over_time(up[%s]) and on (job, instance) up == 1) >= 2 unless on () up == 0", window)
	for _, q := range also {
		query += " and on () (" + q + ")"
	}
	for began := time.Now(); ; {
		p.span = Span{From: began, To: time.Now()}
		n, err := p.samples(t.Context(), query, true, nil)
		if err == nil && n > 0 {
			return p.span.To
		}
		if time.Since(began) > awaitLimit || t.Context().Err() != nil {
			t.Fatalf("some target is not scraped, or there is nothing to see, %v: %s", err, query)
		}
		<-time.After(200 * time.Millisecond)
	}
}

// prometheus is a server to query.
type prometheus struct {
	url  string
	span Span
}

var labelValues = regexp.MustCompile(`^label_values\((.*), (\w+)\)$`)

// choices returns the values of a page's variables with all regions selected, and with
// each if there are several.
func (p prometheus) choices(ctx context.Context, page *page) ([]map[string]string, error) {
	every, regions, err := p.values(ctx, page, "")
	if err != nil {
		return nil, err
	}
	list := []map[string]string{every}
	if len(regions) == 1 {
		return list, nil
	}
	for _, region := range regions {
		one, _, err := p.values(ctx, page, region)
		if err != nil {
			return nil, fmt.Errorf("region %s: %w", region, err)
		}
		list = append(list, one)
	}
	return list, nil
}

// values resolves a page's variables in order, each using those before it, for one
// region or, with "", for all. It also returns the regions.
func (p prometheus) values(ctx context.Context, page *page, region string) (values map[string]string, regions []string, err error) {
	values = map[string]string{
		"__rate_interval": p.span.Window.String(),
		"__interval":      strconv.FormatInt(p.step().Milliseconds(), 10) + "ms",
		"__range":         p.span.To.Sub(p.span.From).Round(time.Second).String(),
	}
	for _, v := range page.Templating.List {
		if v.Type != "query" {
			continue
		}
		m := labelValues.FindStringSubmatch(v.Definition)
		if m == nil {
			return nil, nil, fmt.Errorf("variable %s: %q is not label_values(metric, label)", v.Name, v.Definition)
		}
		match, err := fill(m[1], values)
		if err != nil {
			return nil, nil, err
		}
		var found []string
		if err := p.get(ctx, "label/"+m[2]+"/values", url.Values{"match[]": {match}}, &found); err != nil {
			return nil, nil, fmt.Errorf("variable %s: %w", v.Name, err)
		}
		if len(found) == 0 {
			return nil, nil, fmt.Errorf("variable %s: no values: %s", v.Name, match)
		}
		if values[v.Name] = v.AllValue; v.AllValue == "" {
			values[v.Name] = strings.Join(found, "|")
		}
		if v.Name == "region" {
			regions = found
			if region != "" {
				values[v.Name] = region
			}
		}
	}
	return values, regions, nil
}

// step is in whole milliseconds: PromQL has no shorter duration, and no fractions.
func (p prometheus) step() time.Duration {
	return max(p.span.To.Sub(p.span.From)/200, time.Second).Truncate(time.Millisecond)
}

// samples counts the samples that are numbers, over the span or at its end.
func (p prometheus) samples(ctx context.Context, expr string, instant bool, values map[string]string) (int, error) {
	expr, err := fill(expr, values)
	if err != nil {
		return 0, err
	}
	at := func(t time.Time) string { return strconv.FormatFloat(float64(t.UnixMilli())/1000, 'f', 3, 64) }
	path, query := "query_range", url.Values{
		"query": {expr}, "start": {at(p.span.From)}, "end": {at(p.span.To)},
		"step": {strconv.FormatFloat(p.step().Seconds(), 'f', 3, 64)},
	}
	if instant {
		path, query = "query", url.Values{"query": {expr}, "time": {at(p.span.To)}}
	}
	var answer struct {
		Result []struct {
			Value  [2]any // for an instant
			Values [][2]any
		}
	}
	err = p.get(ctx, path, query, &answer)
	n := 0
	for _, series := range answer.Result {
		for _, v := range append(series.Values, series.Value) {
			text, _ := v[1].(string)
			if f, err := strconv.ParseFloat(text, 64); err == nil && !math.IsNaN(f) && !math.IsInf(f, 0) {
				n++
			}
		}
	}
	return n, err
}

// get asks the HTTP API, https://prometheus.io/docs/prometheus/latest/querying/api/.
func (p prometheus) get(ctx context.Context, path string, query url.Values, data any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url+"/api/v1/"+path+"?"+query.Encode(), nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	var answer struct {
		Status, Error string
		Data          json.RawMessage
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return fmt.Errorf("prometheus: %s: %w", resp.Status, err)
	}
	if answer.Status != "success" {
		return fmt.Errorf("prometheus: %s", answer.Error)
	}
	return json.Unmarshal(answer.Data, data)
}
