package fleet

import (
	"math"
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
	require.Equal(t, Traffic{Requests: 100, Limited: 5, Errors: 10}, c.Total)
	c.Add("2", at(5000, 0, 0))
	require.Equal(t, Traffic{Requests: 100, Limited: 5, Errors: 10}, c.Total)
	c.Add("1", at(20, 1, 2)) // restarted
	require.Equal(t, Traffic{Requests: 121, Limited: 7, Errors: 11}, c.Total)
	c.Add("1", &Figures{requests: map[string]float64{"2xx": 20, "5xx": 1, "4xx": 4}, limited: 5})
	require.Equal(t, Traffic{Requests: 125, Limited: 10, Errors: 11}, c.Total, "a new series began at zero, and a missing one adds nothing")
}

// A node's counters all restart together: none may count as small growth.
func TestTallyOfARestartedNode(t *testing.T) {
	var c Tally
	c.Add("1", &Figures{requests: map[string]float64{"2xx": 1000, "5xx": 5}, took: Durations{0: 10, 11: 1005}})
	c.Add("1", &Figures{requests: map[string]float64{"2xx": 50, "5xx": 6}, took: Durations{0: 40, 11: 56}})
	require.Equal(t, Traffic{Requests: 56, Errors: 6, Took: Durations{0: 40, 11: 56}}, c.Total)
}

func TestDurations(t *testing.T) {
	d := Durations{0: 50, 1: 98, 2: 99, 3: 100, 4: 100, 5: 100, 6: 100, 7: 100, 8: 100, 9: 100, 10: 100, 11: 100}
	require.Equal(t, 0.005, d.Quantile(0.5))
	require.Equal(t, 0.025, d.Quantile(0.99))
	require.Equal(t, 2.0, d.Slower(0.01))
	require.Zero(t, d.Slower(10))
	d[11] = 200
	require.True(t, math.IsInf(d.Quantile(0.99), 1))
	require.True(t, math.IsInf((&Durations{}).Quantile(0.99), 1))
}

func TestReadMetrics(t *testing.T) {
	s := &Figures{requests: map[string]float64{}}
	require.NoError(t, s.read(familiesOf(t, `# HELP weir_requests_total Requests.
# TYPE weir_requests_total counter
weir_requests_total{code_class="2xx"} 12
weir_requests_total{code_class="5xx"} 3e2
# TYPE weir_requests_totally_other gauge
weir_requests_totally_other{code_class="2xx"} 99
# TYPE weir_requests_limited_total counter
weir_requests_limited_total 15
# TYPE weir_request_seconds histogram
weir_request_seconds_bucket{le="0.005"} 7
weir_request_seconds_bucket{le="10"} 8
weir_request_seconds_bucket{le="+Inf"} 9
weir_request_seconds_sum 40
weir_request_seconds_count 9
# TYPE weir_shed_total counter
weir_shed_total{class="test",reason="inflight"} 1
weir_shed_total{class="test",reason="cap"} 2
weir_shed_total{class="test",reason="client"} 4
# TYPE weir_rules_info gauge
weir_rules_info{version="0123456789ab"} 1
`)))
	require.Equal(t, &Figures{Rules: "0123456789ab", requests: map[string]float64{"2xx": 12, "5xx": 300}, limited: 15, shed: 3, took: Durations{0: 7, 10: 8, 11: 9}}, s)
	require.ErrorContains(t, (&Figures{}).read(familiesOf(t, "up 1\n")), "has no weir_requests_total among its metrics; is this an edge?")
}

func TestFiguresOfAnInterval(t *testing.T) {
	at := time.Now()
	before := &Figures{at: at, requests: map[string]float64{"2xx": 100}, limited: 10}
	require.Equal(t, Interval{Rate: 25, Requests: 50, Limited: 5}, (&Figures{at: at.Add(2 * time.Second), requests: map[string]float64{"2xx": 150}, limited: 15}).Since(before))
	require.Equal(t, Interval{Rate: 10, Requests: 20}, (&Figures{at: at.Add(2 * time.Second), requests: map[string]float64{"2xx": 20}}).Since(&Figures{at: at, requests: map[string]float64{"2xx": 100}}), "restarted")
	require.Zero(t, before.Since(nil))
	require.Equal(t, Interval{Shed: true}, (&Figures{at: at, shed: 5}).Since(&Figures{at: at, shed: 4}))
	require.Equal(t, Interval{}, (&Figures{at: at, shed: 5}).Since(&Figures{at: at, shed: 5}))
}
