package ctl

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/ctl/fleet"
	"github.com/weir-edge/weir/internal/ctl/term"
	"github.com/weir-edge/weir/internal/shedding"
)

func TestCompareSettings(t *testing.T) {
	f := func(old, now string, want ...string) {
		t.Helper()
		before, err := fleet.ParseDocument(shedderKind, "", []byte(old))
		require.NoError(t, err)
		after, err := fleet.ParseDocument(shedderKind, "", []byte(now))
		require.NoError(t, err)
		c := after.Body.(comparer).compare(before.Body).(*settingsChanges)
		var got []string
		for _, f := range c.Fields {
			got = append(got, f.Field+": "+f.Old+" → "+f.New)
		}
		require.Equal(t, want, got)
		require.Greater(t, c.Unchanged, 10)
	}
	f("{}", "enabled: true\npatience: 28000ms\nrotate: 60s\n")
	f("enabled: true", `{"enabled": false}`, "enabled: true → false")
	f("{}", "signals: {cpu: off, queue: {low: 1, high: 2.5}}",
		"signals.cpu: none → off", "signals.queue.low: none → 1", "signals.queue.high: none → 2.5", "signals.cpu.low: 0.6 → none", "signals.cpu.high: 0.98 → none")
	f("classes: [{name: a, max_in_flight: 5}, {name: b, max_in_flight: 5}]\ndefault_class: a", "classes: [{name: b, max_in_flight: 5}, {name: a, max_in_flight: 4, match: [{paths: [/x]}]}]\ndefault_class: b",
		"classes: [a, b] → [b, a]", "classes.a.max_in_flight: 5 → 4", `classes.a.match: none → [{"paths":["/x"]}]`, "default_class: a → b")
	f("upstreams: {search: {start: 0.9}}", "upstreams: {search: {max_in_flight: {test: 9}}}",
		"upstreams.search.max_in_flight.test: none → 9", "upstreams.search.start: 0.9 → none")
	f("{}", "user: [\"header:X-Api-Key\"]\nretry_after: {min: 2s}", "user: [client_ip] → [header:X-Api-Key]", "retry_after.min: 1s → 2s")
}

// One assignment may be valid only after another, in whatever order they are given.
func TestSetAll(t *testing.T) {
	for _, args := range [][]string{{"start=0.6", "target=0.5"}, {"target=0.5", "start=0.6"}, {"signals.inflight.low=900", "signals.inflight.high=1000"}} {
		_, err := setAll(shedding.Defaults(), args)
		require.NoError(t, err, "%v", args)
	}
	_, err := setAll(shedding.Defaults(), []string{"enabled=false", "start=1", "patience=soon", "laws=pi"})
	found := problems(err)
	require.Len(t, found, 3)
	require.Equal(t, "start", found[0].Path)
	require.Equal(t, "patience", found[1].Path)
}

func testShowLive(t *testing.T, f *testFleet) {
	require.Equal(t, term.StatusPartial, f.run(t, "shedder", "show", "--live").status, "there is no edge")
	busy := []shedding.UpstreamStatus{{
		Name: "default", Level: 1.4, Utilization: 0.913, Winner: "inflight",
		Signals:    []shedding.SignalStatus{{Name: "inflight", Value: 730, Utilization: 0.913}, {Name: "queue", Problem: "missing"}},
		Classes:    []shedding.ClassStatus{{Name: "critical"}, {Name: "read", ShedByLevel: 12, ShedByCap: 3}},
		Candidates: []shedding.CandidateStatus{{Name: "stricter", Level: 2, Utilization: 1, Winner: "inflight", Shed: map[string]uint64{"read": 99}}},
	}, {Name: "search", Classes: []shedding.ClassStatus{{Name: "critical"}}}}
	f.edge(t, "eu-west", "ams1", "ams1-1", func(s *stub) { s.shedder.status = busy })
	f.edge(t, "us-east", "iad1", "iad1-1", func(s *stub) { s.shedder.status, s.shedder.off = busy[1:], true })
	r := f.good(t, "shedder", "show", "--live")
	require.Contains(t, r.out, "eu-west: no shedder settings published yet, converged: yes\n")
	require.Regexp(t, `  ams1-1  ams1  config  1h0m   consul  default   1.40   0.91         inflight 730  critical 0, read 15 \(3 by cap\)\n`+
		` {39}search    0.00   0.00         -             critical 0\n`, r.out)
	require.Regexp(t, `  ams1-1  default   stricter   2.00   1.00         inflight 730  critical 0, read 99\n`, r.out)
	require.Regexp(t, `iad1-1  iad1 .* search    off    0.00 `, r.out)
	require.Contains(t, r.out, "ams1-1, default: signal queue is left out: missing\n")
	require.Equal(t, 1, strings.Count(r.out, shedding.ShadowBias))
	s := parse[convergence](t, f.good(t, "shedder", "show", "--live", "-o", "json").out)
	require.Equal(t, busy, s.Regions[0].Nodes[0].Shedders)

	f.good(t, "shedder", "set", "enabled=false", "--for", "1h", "--yes", "--by", "ana")
	p, _, err := f.settings("eu-west").Current(t.Context())
	require.NoError(t, err)
	r = f.good(t, "shedder", "show", "--live", "--region", "eu-west")
	require.Contains(t, r.out, "eu-west runs "+p.Version+" (ana, "+term.Stamp(p.AppliedAt)+", until "+until(p)+"), converged: yes\n")
}

func testCompleteSettings(t *testing.T, f *testFleet) {
	f.good(t, "shedder", "set", "enabled=false", "--yes")
	p, _, err := f.settings("eu-west").Current(t.Context())
	require.NoError(t, err)
	for want, args := range map[string][]string{
		"signals.inflight.high=\n":      {"set", "signals.inf"},
		"classes.read.max_in_flight=\n": {"set", "enabled=false", ""},
		p.Version + "\t":                {"show", ""},
		p.Version + "\t20":              {"rollback", "--to", ""},
		"1h\n":                          {"set", "x", "--for", ""},
		"eu-west\nus-east\n":            {"set", "x", "--region", ""},
	} {
		var out, errOut buffer
		require.NoError(t, Run(t.Context(), append([]string{"__complete", "--fleet", f.file, "shedder"}, args...), strings.NewReader(""), &out, &errOut))
		require.Contains(t, out.String(), want, "%v", args)
	}
}
