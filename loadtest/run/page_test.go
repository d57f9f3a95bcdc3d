package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The page reports the outcome: how many scenarios passed, what failed, and the bounds.
func TestPageSaysWhatWasFound(t *testing.T) {
	page := func(r *report) string {
		var out bytes.Buffer
		require.NoError(t, r.html(&out))
		return strings.ReplaceAll(out.String(), "\u00a0", " ")
	}
	r := realistic()
	text := page(r)
	for _, want := range []string{
		"<title>weir load test: 11 of 12 good</title>", "11 of 12 scenarios good, 1 failed",
		`<a href="#redis-master-loss">redis-master-loss</a>: eu-west, rule api, phase fault: a window of 2s was exceeded by 120%; the bound is 100% <span class="soft">(and 2 more)`,
		"3 of 81,522 admitted over a limit", "eu-west: 120% over the limit, bound 100%", "failed seconds after loss: 3.5 s, bound 7 s", "the oracle objected",
		"In fault 818 were admitted; 768 is the minimum.", "An earlier attempt does not count: 41 decisions",
	} {
		require.Contains(t, text, want)
	}
	require.Equal(t, 1, strings.Count(text, "<details open>"), "the failed scenario is open")
	for _, s := range r.Scenarios {
		require.Equal(t, 1, strings.Count(text, `<section id="`+s.Name+`">`))
	}

	require.Contains(t, text, "1 played again")
	var said bytes.Buffer
	r.print(&said, "out")
	require.Contains(t, said.String(), "11 of 12 scenarios good, 186 s, 1 played again;")

	for i := range r.Scenarios {
		r.Scenarios[i].Problems = nil
	}
	require.True(t, r.good())
	require.Contains(t, page(r), "All held: 12 of 12 scenarios good")

	// Every scenario that was played passed, and yet the run did not.
	r.Chosen, r.Incomplete = 13, "interrupted"
	require.False(t, r.good())
	require.Contains(t, page(r), "Incomplete: 12 of 13 scenarios good")
	require.Contains(t, page(r), "did not end normally: interrupted")
	require.Contains(t, page(r), "12 of 13 good, incomplete</title>")
	require.NotContains(t, page(r), "All held")
	said.Reset()
	r.print(&said, "out")
	require.Contains(t, said.String(), "12 of 13 scenarios good, 186 s, 1 played again, INCOMPLETE;")
	r.Chosen, r.Incomplete = 0, ""

	r.Scenarios[5].Fallback = nil
	require.Contains(t, page(r), "bound 0%, since no edge decided alone")
	r.Scenarios = r.Scenarios[:1]
	require.Contains(t, page(r), "Nothing in this run.")
	require.Contains(t, page(r), "Not part of this run.")
}

// Charts of a scenario share their axes, so that regions can be compared.
func TestPlot(t *testing.T) {
	s := result{Began: day, Traffic: []traffic{
		{Region: "eu-west", Each: []second{{Passed: 130}, {Passed: 10}}},
		{Region: "us-east", Each: []second{{Passed: 5}, {Passed: 5}, {Passed: 5}, {Passed: 1}}},
	}}
	p := newPlot(&s)
	require.Equal(t, []int{3, 150, 50}, []int{p.seconds, p.top, p.step}, "without the last second, which is cut short")
	drawn := string(p.chart(s.Traffic[0]))
	last := fmt.Sprintf(`%.1f,%.1f"`, p.x(2.5), p.y(0))
	require.Contains(t, drawn, last, "the line of a region that fell silent continues at 0")
	require.Contains(t, drawn, ">3 s<")
	require.Contains(t, string(p.chart(traffic{Region: "ap-south"})), "no answers")

	s.Traffic[1].Each[3].Failed = 1
	require.Equal(t, 4, newPlot(&s).seconds, "failed requests are included")
}

func TestNumbers(t *testing.T) {
	for n, want := range map[int]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567", -1000: "-1,000"} {
		require.Equal(t, want, number(n))
	}
	require.Equal(t, "9,000 20 k 1.5 M", short(9000)+" "+short(20_000)+" "+short(1_500_000))
	require.Equal(t, "100%", percent(100))
	require.Equal(t, "100.4%", percent(100.4))
	require.Equal(t, []int{1, 1, 2, 50, 500_000}, []int{niceStep(1, 3), niceStep(3, 3), niceStep(4, 3), niceStep(130, 3), niceStep(1_250_000, 3)})
}

// A bound of time is shown next to what k6 measured.
func TestWaits(t *testing.T) {
	folder := t.TempDir()
	summary, points := filepath.Join(folder, "summary.json"), filepath.Join(folder, "points.json")
	require.NoError(t, os.WriteFile(points, nil, 0o600))
	require.NoError(t, os.WriteFile(summary, []byte(`{"waits":[{"metric":"took","seconds":10},{"metric":"rules","seconds":5}],
		"metrics":{"took":{"values":{"max":3.536,"p(95)":3},"thresholds":{"max<10":{"ok":true}}}}}`), 0o600))
	var r result
	require.NoError(t, r.read(summary, points))
	require.Equal(t, "3.5\u00a0s", r.Waits[0].Found())
	require.True(t, r.Waits[0].OK())
	require.Empty(t, r.Waits[1].Found())
	late := 10.2
	require.False(t, wait{Seconds: 10, Longest: &late}.OK())
}
