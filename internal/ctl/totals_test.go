package ctl

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/ctl/command"
	"github.com/weir-edge/weir/internal/ctl/hour"
	"github.com/weir-edge/weir/internal/ctl/rules"
	"github.com/weir-edge/weir/internal/ctl/shedder"
	"github.com/weir-edge/weir/internal/ctl/term"
)

// What an edge counted before it restarted stays in the totals of a watch, which the console shows.
func TestTotalsSurviveRestarts(t *testing.T) {
	t.Parallel()
	f := startFleet(t, "eu-west")
	counts := []float64{100, 110, 5, 7} // the third is after a restart
	f.edge(t, "eu-west", "ams1", "ams1-1", func(s *stub) {
		s.traffic = func(s *stub, _ string) {
			if s.limited = counts[0]; len(counts) > 1 {
				counts = counts[1:]
			}
		}
	})
	p := f.program(strings.NewReader(""), io.Discard, io.Discard)
	p.FleetFile, p.Timeout = f.file, command.DefaultTimeout
	t.Cleanup(p.Close)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var totals []float64
	_ = rules.WatchList(ctx, p, nil, time.Millisecond, func(v *rules.RuleList) error {
		if len(v.Rules) == 1 && !v.Regions[0].Uncounted {
			totals = append(totals, v.Rules[0].Total.Limited)
		}
		if len(totals) == 4 {
			cancel()
		}
		return nil
	})
	require.Equal(t, []float64{100, 110, 115, 117}, totals)
}

// Prometheus tells of the last hour; the regions are those of the fleet.
func TestLastHour(t *testing.T) {
	t.Parallel()
	var asked []string
	began := time.Now().UTC()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.Path+" "+r.FormValue("query"))
		const edge = `"region": "eu-west", "node": "ams1-1", "upstream": "default"`
		list := map[string]string{
			"sum by (rule, outcome)": `{"metric": {"rule": "login", "outcome": "limited"}, "value": [1, "12.5"]}, {"metric": {"rule": "login", "outcome": "allowed"}, "value": [1, "NaN"]}`,
			"sum by (rule)":          fmt.Sprintf(`{"metric": {"rule": "login"}, "values": [[%d, "0.25"], [%d, "1.5"]]}`, began.Add(-59*time.Minute).Unix(), began.Unix()),
			"sum by (region, node, upstream, class, reason)": `{"metric": {` + edge + `, "class": "test", "reason": "inflight"}, "value": [1, "3"]},
				{"metric": {` + edge + `, "class": "test", "reason": "cap"}, "value": [1, "5"]}, {"metric": {` + edge + `, "class": "test", "reason": "probe"}, "value": [1, "2"]}`,
			"sum by (region, node, upstream)":            fmt.Sprintf(`{"metric": {`+edge+`}, "values": [[%d, "0.5"]]}`, began.Unix()),
			"sum by (region, node, upstream, candidate)": fmt.Sprintf(`{"metric": {`+edge+`, "candidate": "trial"}, "values": [[%d, "0.75"]]}`, began.Unix()),
		}[strings.SplitAfter(r.FormValue("query"), ")")[0]]
		_, _ = fmt.Fprintf(w, `{"status": "success", "data": {"result": [%s]}}`, list)
	}))
	t.Cleanup(server.Close)
	p := command.NewProgram(term.New(strings.NewReader(""), io.Discard, io.Discard))
	p.FleetFile, p.Timeout = write(t, "fleet.yaml", "regions: [{name: eu-west, consul: {addr: \"127.0.0.1:1\"}}, {name: us-east, consul: {addr: \"127.0.0.1:2\"}}]\n"), patience
	t.Cleanup(p.Close)
	h, err := rules.LastHour(t.Context(), p, nil)
	require.NoError(t, err)
	require.False(t, h.Configured, "no Prometheus")

	p.Prometheus = server.URL
	h, err = rules.LastHour(t.Context(), p, nil)
	require.NoError(t, err)
	require.True(t, h.Configured)
	require.Equal(t, 12.5, h.Rules["login"].Total.Limited)
	require.Zero(t, h.Rules["login"].Total.Allowed)
	require.Len(t, h.Rules["login"].PerSecond, 60)
	require.InDelta(t, 1.75, sumOf(h.Rules["login"].PerSecond), 1e-9)
	require.Equal(t, []string{
		`/api/v1/query sum by (rule, outcome) (increase(weir_decisions_total{region=~"eu-west|us-east"}[1h]))`,
		`/api/v1/query_range sum by (rule) (rate(weir_decisions_total{region=~"eu-west|us-east"}[2m]))`,
	}, asked)

	asked = nil
	sheds, err := shedder.LastHour(t.Context(), p, []string{"eu-west"})
	require.NoError(t, err)
	require.Len(t, sheds.Upstreams, 1)
	u := sheds.Upstreams["eu-west/ams1-1/default"]
	require.Equal(t, map[string]shedder.ShedHour{"test": {ByLevel: 3, ByCap: 7}}, u.Shed)
	require.InDelta(t, 0.5, sumOf(u.PerSecond), 1e-9)
	require.InDelta(t, 0.75, sumOf(u.Candidates["trial"]), 1e-9)
	require.Equal(t, []string{
		`/api/v1/query sum by (region, node, upstream, class, reason) (increase(weir_shed_total{region=~"eu-west",reason!="client"}[1h]))`,
		`/api/v1/query_range sum by (region, node, upstream) (rate(weir_shed_total{region=~"eu-west",reason!="client"}[2m]))`,
		`/api/v1/query_range sum by (region, node, upstream, candidate) (rate(weir_shadow_shed_total{region=~"eu-west"}[2m]))`,
	}, asked)

	p.Prometheus = "http://ana:secret@127.0.0.1:1"
	_, err = rules.LastHour(t.Context(), p, nil)
	require.ErrorContains(t, err, "Prometheus at http://ana:xxxxx@127.0.0.1:1: ")
	require.NotContains(t, err.Error(), "secret")
	require.ErrorContains(t, hour.Check("prometheus:9090"), "must be an address such as http://")
}

func sumOf(list []float64) (sum float64) {
	for v := range slices.Values(list) {
		sum += v
	}
	return sum
}
