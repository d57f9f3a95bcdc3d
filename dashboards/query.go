package dashboards

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
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
	Window   time.Duration // takes the place of $__rate_interval: four scrapes or more
}

// Except says what need not answer.
type Except struct {
	Folded bool              // folded rows: not everyone has what they ask for
	Panels map[string]string // such as "weir-fleet/26", and why
}

// QueryAll asks a Prometheus every query of every panel, variable and annotation, as
// Grafana would, and fails t for each that answers nothing, or nothing but NaN.
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
		values, err := p.values(t.Context(), page)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		ask := func(what, expr string, why string) {
			t.Helper()
			n, err := p.samples(t.Context(), expr, values)
			switch {
			case err != nil:
				t.Errorf("%s: %s: %v", page.Title, what, err)
			case n == 0 && why == "":
				t.Errorf("%s: %s: no data: %s", page.Title, what, expr)
			case n == 0:
				t.Logf("%s: %s: no data: %s", page.Title, what, why)
			}
		}
		for _, a := range page.Annotations.List {
			ask("annotation "+a.Name, a.Expr, "")
		}
		panels, folded := page.graphs()
		if !except.Folded {
			panels = append(panels, folded...)
		}
		for _, panel := range panels {
			id := page.UID + "/" + strconv.Itoa(panel.ID)
			known[id] = true
			for _, target := range panel.Targets {
				ask(fmt.Sprintf("panel %d %q, query %s", panel.ID, panel.Title, target.RefID), target.Expr, except.Panels[id])
			}
		}
	}
	for id := range except.Panels {
		if !known[id] {
			t.Errorf("%s may be empty, and is no panel", id)
		}
	}
}

// Far more than a busy machine needs: only what fails ever waits so long.
const awaitLimit = time.Minute

// Await waits until a query, which names no variable, has had an answer at some moment
// since then.
func Await(t testing.TB, promURL string, since time.Time, what, query string) {
	t.Helper()
	p := prometheus{url: strings.TrimSuffix(promURL, "/"), span: Span{From: since}}
	for began := time.Now(); ; {
		p.span.To = time.Now()
		n, err := p.samples(t.Context(), query, nil)
		if err == nil && n > 0 {
			return
		}
		if time.Since(began) > awaitLimit || t.Context().Err() != nil {
			t.Fatalf("%s: no answer, %v: %s", what, err, query)
		}
		<-time.After(200 * time.Millisecond)
	}
}

// prometheus is a server that is asked.
type prometheus struct {
	url  string
	span Span
}

var labelValues = regexp.MustCompile(`^label_values\((.*), (\w+)\)$`)

// values resolves a page's variables in their order, each by those before it.
func (p prometheus) values(ctx context.Context, page *page) (map[string]string, error) {
	values := map[string]string{
		"__rate_interval": p.span.Window.String(),
		"__interval":      p.step().String(),
		"__range":         p.span.To.Sub(p.span.From).Round(time.Second).String(),
	}
	for _, v := range page.Templating.List {
		switch v.Type {
		case "query":
			m := labelValues.FindStringSubmatch(v.Definition)
			if m == nil {
				return nil, fmt.Errorf("variable %s: %q is not label_values(metric, label)", v.Name, v.Definition)
			}
			match, err := fill(m[1], values)
			if err != nil {
				return nil, err
			}
			var found []string
			if err := p.get(ctx, "label/"+m[2]+"/values", url.Values{"match[]": {match}}, &found); err != nil {
				return nil, fmt.Errorf("variable %s: %w", v.Name, err)
			}
			if len(found) == 0 {
				return nil, fmt.Errorf("variable %s: no values: %s", v.Name, match)
			}
			if values[v.Name] = v.AllValue; v.AllValue == "" {
				values[v.Name] = strings.Join(found, "|")
			}
		case "textbox":
			var value string
			if err := json.Unmarshal(v.Current.Value, &value); err != nil {
				return nil, fmt.Errorf("variable %s: %w", v.Name, err)
			}
			values[v.Name] = value
		}
	}
	return values, nil
}

func (p prometheus) step() time.Duration { return max(p.span.To.Sub(p.span.From)/200, time.Second) }

// samples counts the samples that are numbers.
func (p prometheus) samples(ctx context.Context, expr string, values map[string]string) (int, error) {
	expr, err := fill(expr, values)
	if err != nil {
		return 0, err
	}
	at := func(t time.Time) string { return strconv.FormatFloat(float64(t.UnixMilli())/1000, 'f', 3, 64) }
	var answer struct {
		Result []struct {
			Values [][2]any
		}
	}
	err = p.get(ctx, "query_range", url.Values{
		"query": {expr}, "start": {at(p.span.From)}, "end": {at(p.span.To)},
		"step": {strconv.FormatFloat(p.step().Seconds(), 'f', 3, 64)},
	}, &answer)
	n := 0
	for _, series := range answer.Result {
		for _, v := range series.Values {
			if v[1] != "NaN" {
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
