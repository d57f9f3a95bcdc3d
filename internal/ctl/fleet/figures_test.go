package fleet

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestTally(t *testing.T) {
	at := func(ok, bad, limited float64) *Figures {
		return &Figures{requests: map[string]float64{"2xx": ok, "5xx": bad}, limited: limited}
	}
	var c Tally
	c.Add("1", at(1000, 100, 50))
	require.Zero(t, c.Total, "what happened before does not count")
	c.Add("1", at(1090, 110, 55))
	require.Equal(t, Traffic{100, 5, 10}, c.Total)
	c.Add("2", at(5000, 0, 0))
	require.Equal(t, Traffic{100, 5, 10}, c.Total)
	c.Add("1", at(20, 1, 2)) // restarted
	require.Equal(t, Traffic{121, 7, 11}, c.Total)
	c.Add("1", &Figures{requests: map[string]float64{"2xx": 20, "5xx": 1, "4xx": 4}, limited: 5})
	require.Equal(t, Traffic{125, 10, 11}, c.Total, "a new series began at zero, and a missing one adds nothing")
}

func TestReadMetrics(t *testing.T) {
	s := &Figures{requests: map[string]float64{}}
	require.NoError(t, s.read(strings.NewReader(`# HELP weir_requests_total Requests.
# TYPE weir_requests_total counter
weir_requests_total{code_class="2xx"} 12
weir_requests_total{code_class="5xx"} 3e2
# TYPE weir_requests_totally_other gauge
weir_requests_totally_other{code_class="2xx"} 99
# TYPE weir_requests_limited_total counter
weir_requests_limited_total 15
# TYPE weir_rules_info gauge
weir_rules_info{version="0123456789ab"} 1
this is not a metric {
`)))
	require.Equal(t, &Figures{Rules: "0123456789ab", requests: map[string]float64{"2xx": 12, "5xx": 300}, limited: 15}, s)
	require.ErrorContains(t, (&Figures{}).read(strings.NewReader("<html>")), "has no weir_requests_total among its metrics; is this an edge?")
	require.ErrorContains(t, s.read(strings.NewReader("weir_requests_total{code_class=} x\n")), "are not metrics: ")
}

func TestFiguresOfAnInterval(t *testing.T) {
	at := time.Now()
	before := &Figures{at: at, requests: map[string]float64{"2xx": 100}, limited: 10}
	require.Equal(t, Interval{Rate: 25, Requests: 50, Limited: 5}, (&Figures{at: at.Add(2 * time.Second), requests: map[string]float64{"2xx": 150}, limited: 15}).Since(before))
	require.Equal(t, Interval{Rate: 10, Requests: 20}, (&Figures{at: at.Add(2 * time.Second), requests: map[string]float64{"2xx": 20}}).Since(&Figures{at: at, requests: map[string]float64{"2xx": 100}}), "restarted")
	require.Zero(t, before.Since(nil))
}
