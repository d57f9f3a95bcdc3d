package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/pkg/limiter/rules"
)

var three = state{Nodes: 4, Regions: []region{{Name: "eu-west"}, {Name: "us-east"}, {Name: "ap-south"}}}

// lines is a report in which every region had load.
func lines(change func(*line)) []line {
	var all []line
	for _, r := range three.Regions {
		l := line{Region: r.Name, Rule: "api", Phase: "fault", Admitted: 100, Refused: 50, RetryChecked: 50}
		change(&l)
		all = append(all, l)
	}
	return all
}

func exceeded(l *line, percent float64) {
	l.Overadmitted = 7
	if err := json.Unmarshal([]byte(`{"window":"2s","excess":7}`), &l.Worst); err != nil {
		panic(err) // a constant
	}
	l.Worst.Percent = percent
}

// together is the report of a rule that regions share, exceeded by so much.
func together(percent float64) []line {
	l := line{Region: everywhere, Rule: "api", Phase: "fault", Admitted: 100, Refused: 50, RetryChecked: 50}
	if percent > 0 {
		exceeded(&l, percent)
	}
	return []line{l}
}

func TestJudge(t *testing.T) {
	heard := []traffic{{Region: "eu-west", Passed: 1}, {Region: "us-east", Passed: 1}, {Region: "ap-south", Passed: 1}}
	bounds := []bound{{Rule: "api", Region: "eu-west", Phases: []string{"fault"}, Percent: 100, Fallback: true}}
	lost := map[string]int{"eu-west": 9}
	for _, c := range []struct {
		name string
		r    result
		want string // part of the only problem; empty for none
	}{
		{"nothing is wrong", result{Report: lines(func(*line) {})}, ""},
		{"over-admitted, though no threshold of the script says so", result{Report: lines(func(l *line) {
			if l.Region == "us-east" {
				exceeded(l, 1)
			}
		})}, "us-east, rule api, phase fault: 7 over-admitted"},
		{"wrongly refused", result{Report: lines(func(l *line) {
			if l.Region == "us-east" {
				l.WronglyRefused = 1
			}
		})}, "1 wrongly refused"},
		{"no Retry-After was judged", result{Report: lines(func(l *line) {
			if l.Region == "us-east" {
				l.RetryChecked = 0
			}
		})}, "no Retry-After of 50 refusals"},
		{"hardly anything was judged", result{Report: lines(func(l *line) {
			if l.Region == "us-east" {
				l.Unjudged = 76
			}
		})}, "76 were not judged"},
		{"hardly anything was answered", result{Report: lines(func(l *line) {
			if l.Region == "us-east" {
				l.Unknown = 151
			}
		})}, "151 had no answer"},
		{"a threshold of k6", result{Status: thresholdsFailed, Report: lines(func(*line) {}), Checks: []check{{"failed", "count==0", false}}}, "threshold: failed count==0"},
		{"k6 crashed", result{Status: 107, Report: lines(func(*line) {})}, "status 107"},
		{"within the bound of a fault", result{Bounds: bounds, Fallback: lost, Report: lines(func(l *line) {
			if l.Region == "eu-west" {
				exceeded(l, 100)
				l.WronglyRefused = 3
			}
		})}, ""},
		{"beyond it", result{Bounds: bounds, Fallback: lost, Report: lines(func(l *line) {
			if l.Region == "eu-west" {
				exceeded(l, 101)
			}
		})}, "exceeded by 101%; the bound is 100%"},
		{"in another phase", result{Bounds: bounds, Fallback: lost, Report: lines(func(l *line) {
			if l.Region == "eu-west" {
				l.Phase = "after"
				exceeded(l, 5)
			}
		})}, "phase after: 7 over-admitted"},
		{"in another region", result{Bounds: bounds, Fallback: lost, Report: lines(func(l *line) {
			if l.Region == "ap-south" {
				exceeded(l, 5)
			}
		})}, "ap-south, rule api"},
		{"a fault without effect", result{Bounds: bounds, Report: lines(func(*line) {})}, "the fault had no effect"},
		{"over, within the bound, though no edge decided alone", result{Bounds: []bound{{Rule: "api", Region: "eu-west", Phases: []string{"fault"}, Percent: 100}}, Report: lines(func(l *line) {
			if l.Region == "eu-west" {
				exceeded(l, 5)
			}
		})}, "eu-west, rule api, phase fault: 7 over-admitted"},
		{"an act that failed", result{Failed: []string{"heal failed: no"}, Report: lines(func(*line) {})}, "heal failed"},
		{"nobody was refused", result{Report: lines(func(l *line) {
			if l.Region == "us-east" {
				l.Refused, l.RetryChecked = 0, 0
			}
		})}, "us-east, rule api: no request was refused"},
		{"k6 could not send enough for anybody to be refused", result{Sent: 3200, Dropped: 4000, Report: lines(func(l *line) {
			if l.Region == "us-east" {
				l.Refused, l.RetryChecked = 0, 0
			}
		})}, "us-east, rule api: no request was refused, so the limit is not proven: k6 had time for only 3200 of 7200 requests"},
		{"nobody was refused where more may pass", result{Bounds: bounds, Fallback: lost, Report: lines(func(l *line) {
			if l.Region == "eu-west" {
				l.Refused, l.RetryChecked = 0, 0
			}
		})}, ""},
		{"too few admitted in a fault", result{Bounds: []bound{{Rule: "api", Region: "eu-west", Phases: []string{"fault"}, Percent: 100, Least: 101}}, Report: lines(func(*line) {})}, "100 admitted; the bound is 101 at least"},
		{"regions hear late of each other", result{Traffic: heard, Bounds: []bound{{Rule: "api", Region: everywhere, Phases: []string{"fault"}, Percent: 10, Late: true}}, Report: together(10)}, ""},
		{"regions exceed what they share by more", result{Traffic: heard, Bounds: []bound{{Rule: "api", Region: everywhere, Phases: []string{"fault"}, Percent: 10, Late: true}}, Report: together(11)}, "everywhere, rule api, phase fault: a window of 2s was exceeded by 11%; the bound is 10%"},
		{"regions exceed what they share, without a bound", result{Traffic: heard, Report: together(1)}, "7 over-admitted"},
		{"a region that took no part", result{Traffic: heard[1:], Report: together(0)}, "eu-west: nothing was admitted"},
		{"a region without traffic", result{Report: lines(func(*line) {})[:2]}, "ap-south: nothing was admitted"},
		{"a phase without traffic", result{Report: lines(func(*line) {}), Planned: []string{"fault", "after"}, Phases: []phase{{Name: "fault"}, {Name: "after"}}},
			"phase after: nothing was admitted in eu-west, us-east, ap-south"},
		{"a phase without traffic in a region", result{Planned: []string{"fault"}, Phases: []phase{{Name: "fault"}}, Report: lines(func(l *line) {
			if l.Region == "us-east" {
				l.Phase = "before"
			}
		})}, "phase fault: nothing was admitted in us-east,"},
		{"a region that is broken in a phase is silent", result{Planned: []string{"fault"}, Phases: []phase{{Name: "fault"}}, Fallback: lost,
			Bounds: []bound{{Rule: "api", Region: "eu-west", Phases: []string{"fault"}}}, Report: lines(func(l *line) {
				if l.Region == "eu-west" {
					l.Phase = "before"
				}
			})}, ""},
		{"a phase that never came", result{Report: lines(func(*line) {}), Planned: []string{"fault", "after"}, Phases: []phase{{Name: "fault"}}}, "phase after: the script never reached it"},
		{"a phase that nobody declared", result{Report: lines(func(*line) {}), Phases: []phase{{Name: "fault"}}}, "phase fault: the script does not declare it"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := c.r.judge(three)
			if c.want == "" {
				require.Empty(t, got)
				return
			}
			require.Len(t, got, 1)
			require.Contains(t, got[0], c.want)
		})
	}
}

// A rule in shadow passed off as enforced: the run must fail, and the scenario that
// proves it must fail if the oracle does not object.
func TestARunCanFail(t *testing.T) {
	shadow := lines(func(l *line) { exceeded(l, 300) })
	passedOff := result{Status: thresholdsFailed, Report: shadow}
	require.Len(t, passedOff.judge(three), 3)
	all := report{Scenarios: []result{{Name: "steady", Problems: passedOff.judge(three)}}}
	require.False(t, all.good())

	proof := result{MustFail: true, Status: thresholdsFailed, Report: shadow}
	require.Empty(t, proof.judge(three))
	proof.Report = lines(func(*line) {})
	require.Len(t, proof.judge(three), 3, "the oracle is blind")
	proof = result{MustFail: true, Status: 0, Report: shadow}
	require.Len(t, proof.judge(three), 1, "the thresholds held")
}

func TestStarved(t *testing.T) {
	r := result{Fallback: map[string]int{"eu-west": 5, "us-east": 2}, Bounds: []bound{{Region: "eu-west"}}}
	require.Equal(t, 2, r.starved())
	require.Contains(t, r.busy(), "2 decisions were made without Redis")
	r = result{Sent: 1000, Dropped: 19}
	require.Empty(t, r.busy(), "nearly all")
	r.Dropped = 20
	require.Equal(t, "k6 had time for only 1000 of 1020 requests, the machine is too busy", r.busy())
	require.Empty(t, (&result{}).busy(), "an empty one")
}

func TestDifference(t *testing.T) {
	a, b, c := [2]string{"eu-west", "a"}, [2]string{"eu-west", "b"}, [2]string{"us-east", "c"}
	require.Equal(t, map[string]int{"eu-west": 4, "us-east": 1},
		difference(map[[2]string]float64{a: 10}, map[[2]string]float64{a: 12, b: 2, c: 1}), "b was restarted")
}

// The scenarios' rules are valid, the broken one is in shadow, and no other is.
func TestRules(t *testing.T) {
	text, err := os.ReadFile("../rules.json")
	require.NoError(t, err)
	local, err := rules.Load(text)
	require.NoError(t, err)
	require.Equal(t, 1, strings.Count(string(text), `"mode"`))
	require.Contains(t, string(text), `"id": "in-shadow"`)

	text, err = os.ReadFile("../rules-global.json")
	require.NoError(t, err)
	var document struct{ Rules []rules.Rule }
	require.NoError(t, json.Unmarshal(text, &document))
	set, err := rules.Load(text)
	require.NoError(t, err)
	for _, r := range set.Rules() {
		require.NotNil(t, r.Limit.Global, "regions share %s", r.ID)
		_, known := local.Rule(r.ID)
		require.False(t, known, "scripts find %s in the other document", r.ID)
	}
}

// Every scenario has a script, and every script except the shared ones is a scenario.
func TestScripts(t *testing.T) {
	files, err := filepath.Glob("../*.js")
	require.NoError(t, err)
	var have []string
	for _, f := range files {
		have = append(have, strings.TrimSuffix(filepath.Base(f), ".js"))
	}
	require.ElementsMatch(t, append(names(), "lib", "global"), have)
}

func TestPoints(t *testing.T) {
	began := time.Date(2026, 11, 21, 9, 0, 0, 0, time.UTC)
	file := filepath.Join(t.TempDir(), "points.json")
	require.NoError(t, os.WriteFile(file, []byte(`{"type":"Metric","metric":"http_req_duration","data":{}}
{"metric":"http_req_duration","type":"Point","data":{"time":"2026-11-21T09:00:00.5Z","value":2.5,"tags":{"region":"eu-west","status":"200"}}}
{"metric":"http_req_duration","type":"Point","data":{"time":"2026-11-21T09:00:02.5Z","value":4.5,"tags":{"region":"eu-west","status":"429"}}}
{"metric":"http_req_duration","type":"Point","data":{"time":"2026-11-21T09:00:02.6Z","value":4.5,"tags":{"region":"eu-west","status":"0"}}}
{"metric":"http_req_duration","type":"Point","data":{"time":"2026-11-21T09:00:02.7Z","value":9,"tags":{"status":"200"}}}
{"metric":"http_reqs","type":"Point","data":{"time":"2026-11-21T09:00:02.7Z","value":1,"tags":{"region":"eu-west","status":"200"}}}
`), 0o600))
	r := result{Began: began}
	require.NoError(t, r.readPoints(file))
	require.Len(t, r.Traffic, 1)
	require.Equal(t, []second{{Passed: 1}, {}, {Limited: 1, Failed: 1}}, r.Traffic[0].Each)
	require.Equal(t, 4.5, r.Traffic[0].P95)
}

// The page needs nothing from elsewhere, and text in it is escaped.
func TestPage(t *testing.T) {
	all := report{Form: "short", Lab: three, Scenarios: []result{{
		Name: "steady", About: "<b>about", Report: lines(func(*line) {}), Problems: []string{"<script>"},
		Phases: []phase{{Name: "<i>phase", From: time.Unix(1, 0)}}, Began: time.Unix(0, 0),
		Traffic: []traffic{{Region: "eu-west", Passed: 3, Each: []second{{Passed: 3}, {Limited: 2}}}},
		Bounds:  []bound{{Rule: "api", Region: "eu-west", Phases: []string{"fault"}, Percent: 100, Why: "because"}},
	}}}
	folder := t.TempDir()
	require.NoError(t, all.write(folder))
	page, err := os.ReadFile(filepath.Join(folder, "report.html"))
	require.NoError(t, err)
	for _, foreign := range []string{"<script", "http:", "https:", "src=", "<link", "<b>about", "<i>phase", "url("} {
		require.NotContains(t, string(page), foreign)
	}
	require.Contains(t, string(page), "&lt;i&gt;phase")
	require.Contains(t, string(page), "<svg")
	require.Contains(t, string(page), "because")
	var back report
	text, err := os.ReadFile(filepath.Join(folder, "report.json"))
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &back))
	require.Equal(t, all.Scenarios[0].Traffic[0].Each, back.Scenarios[0].Traffic[0].Each)
	var out bytes.Buffer
	all.Scenarios[0].print(&out, three)
	for _, r := range three.Regions {
		require.Contains(t, out.String(), r.Name)
	}
}

func TestOnly(t *testing.T) {
	o := options{only: "steady,shadow"}
	got, err := o.chosen()
	require.NoError(t, err)
	require.Len(t, got, 2)
	o.only = "stedy"
	_, err = o.chosen()
	require.ErrorContains(t, err, `there is no "stedy"`)
}
