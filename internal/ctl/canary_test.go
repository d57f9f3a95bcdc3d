package ctl

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/ctl/rollout"
	"github.com/weir-edge/weir/internal/ctl/term"
	"github.com/weir-edge/weir/pkg/region/consul"
)

// site is a fleet whose site ams1 tries rules while two other sites do not.
type site struct {
	*testFleet
	old    consul.Pointer
	file   string
	next   string // the candidate's version
	edges  []*stub
	canary *stub
}

// load describes the traffic between two readings of an edge.
func load(requests, limited, errors float64) func(*stub, string) {
	return func(s *stub, _ string) {
		s.requests["2xx"] += requests - errors
		s.requests["5xx"] += errors
		s.limited += limited
	}
}

func newSite(t *testing.T, f *testFleet, onTrial func(*stub, string)) *site {
	t.Helper()
	s := &site{testFleet: f, old: f.publish(t, rulesOf(1), "ana", f.names...), file: write(t, "rules.yaml", rulesOf(2))}
	s.next = consul.NewPointer([]byte(rulesOf(2)), "", time.Now()).Version
	s.canary = f.edge(t, "eu-west", "ams1", "ams1-1", func(e *stub) { e.traffic = onTrial })
	others := func(e *stub) { e.traffic = load(100, 2, 0) }
	s.edges = []*stub{s.canary, f.edge(t, "eu-west", "fra1", "fra1-1", others)}
	if len(f.names) > 1 {
		s.edges = append(s.edges, f.edge(t, "us-east", "iad1", "iad1-1", others))
	}
	for _, e := range s.edges {
		require.Eventually(t, func() bool { return e.runs() == s.old.Version }, patience, tick)
	}
	return s
}

// args run a trial that reads figures every 100 ms.
func (s *site) args(more ...string) []string {
	return append([]string{"rules", "apply", s.file, "--canary", "ams1", "--interval", "100ms"}, more...)
}

// gone requires that the canary was removed and nothing was changed.
func (s *site) gone(t *testing.T) {
	t.Helper()
	for _, name := range s.names {
		canaries, _, err := s.rules(name).Canaries(t.Context())
		require.NoError(t, err)
		require.Empty(t, canaries)
	}
}

func (s *site) unchanged(t *testing.T) {
	t.Helper()
	s.gone(t)
	for _, name := range s.names {
		require.Equal(t, s.old.Version, s.current(t, name))
	}
	for _, e := range s.edges {
		require.Eventually(t, func() bool { return e.runs() == s.old.Version }, patience, tick)
	}
}

func testCanaryPromoted(t *testing.T, f *testFleet) {
	s := newSite(t, f, load(50, 2, 0))
	c := s.converse(t, s.args("--bake", "1s", "-o", "json")...)
	c.sees(t, "Try on ams1 for 1s, then apply to eu-west, us-east? [y/N] ")
	c.answer(t, "y")
	c.sees(t, "ams1: ")
	require.Equal(t, s.next, s.canary.runs())
	require.Equal(t, s.old.Version, s.edges[1].runs(), "the others wait")
	p, _, err := s.rules("eu-west").Canary(t.Context(), "ams1")
	require.NoError(t, err)
	require.WithinDuration(t, time.Now().Add(61*time.Second), *p.ExpiresAt, 5*time.Second)
	elsewhere, _, err := s.rules("us-east").Canaries(t.Context())
	require.NoError(t, err)
	require.Empty(t, elsewhere)
	r := c.end(t)
	require.Zero(t, r.status, r.errOut)
	s.gone(t)
	for _, e := range s.edges {
		require.Equal(t, s.next, e.runs())
	}
	report := parse[changeReport](t, r.out)
	require.True(t, report.Canary.Promoted)
	require.True(t, report.Converged)
	require.Equal(t, []string{"eu-west"}, report.Canary.Regions)
	require.InDelta(t, 0.04, report.Canary.Canary.LimitedShare(), 0.001)
	require.InDelta(t, 0.02, report.Canary.Others.LimitedShare(), 0.001)
	require.Contains(t, r.errOut, "ams1 is within the bounds after 1s: ")
	require.Contains(t, r.errOut, "limited 4.00 % (others 2.00 %), 5xx 0.00 % (others 0.00 % of ")

	// Nothing is left to try.
	r = s.good(t, s.args("--bake", "1h", "--yes")...)
	require.Contains(t, r.out, "no difference")
}

func testCanaryLimits(t *testing.T, f *testFleet) {
	s := newSite(t, f, load(100, 30, 0))
	began := time.Now()
	r := s.run(t, s.args("--bake", "10m", "--yes", "-o", "json")...)
	require.Equal(t, term.StatusFailed, r.status)
	require.Less(t, time.Since(began), 30*time.Second, "the bake ends early")
	require.Regexp(t, `canary on ams1: outside the bounds twice in a row: it limited 30.00 % of \d+ requests, the other sites 2.00 % of \d+; at most 5 points more is allowed\n`+
		`the canary was removed, and no region was changed\n`, r.errOut)
	s.unchanged(t)
	report := parse[changeReport](t, r.out)
	require.False(t, report.Canary.Promoted)
	require.Contains(t, report.Canary.Why, "it limited 30.00 %")
	require.Equal(t, rollout.Untouched, report.Regions[0].Result)

	// With another bound, the same figures are good.
	s.good(t, s.args("--bake", "500ms", "--yes", "--max-limited-increase", "0.3")...)
	require.Equal(t, s.next, s.current(t, "us-east"))
}

func testCanaryFails(t *testing.T, f *testFleet) {
	s := newSite(t, f, load(100, 0, 5))
	r := s.run(t, s.args("--bake", "10m", "--yes")...)
	require.Equal(t, term.StatusFailed, r.status)
	require.Regexp(t, `it answered 5xx to 5.00 % of \d+ requests, the other sites to 0.00 % of \d+; at most 1 points more is allowed\n`, r.errOut)
	s.unchanged(t)
}

func testCanaryIdle(t *testing.T, f *testFleet) {
	s := newSite(t, f, load(1, 1, 0))
	r := s.run(t, s.args("--bake", "500ms", "--yes", "--min-requests", "1000")...)
	require.Equal(t, term.StatusFailed, r.status)
	require.Regexp(t, `not promoted: it had only \d requests in 500ms, and is judged by at least 1000; bake longer, or lower --min-requests`, r.errOut)
	s.unchanged(t)
	s.canary.mu.Lock()
	s.canary.traffic = nil
	s.canary.mu.Unlock()
	s.good(t, s.args("--bake", "500ms", "--yes", "--min-requests", "0")...)
	require.Equal(t, s.next, s.current(t, "us-east"))
}

func testCanaryInterrupted(t *testing.T, f *testFleet) {
	s := newSite(t, f, load(10, 0, 0))
	c := s.converse(t, s.args("--bake", "10m", "--yes")...)
	c.sees(t, "ams1: ")
	require.Equal(t, s.next, s.canary.runs())
	c.cancel()
	r := c.end(t)
	require.Equal(t, term.StatusInterrupted, r.status)
	require.Contains(t, r.errOut, "regionctl: canary on ams1: interrupted\nthe canary was removed, and no region was changed\n")
	s.unchanged(t)

	c = s.converse(t, s.args("--bake", "10m", "--yes")...)
	require.Eventually(t, func() bool {
		p, _, err := s.rules("eu-west").Canary(t.Context(), "ams1")
		return err == nil && p != nil
	}, patience, time.Millisecond)
	c.cancel() // before its edges follow
	require.Equal(t, term.StatusInterrupted, c.end(t).status)
	s.unchanged(t)
}

// Somebody applies another version during the bake.
func testCanaryOvertaken(t *testing.T, f *testFleet) {
	s := newSite(t, f, load(10, 0, 0))
	c := s.converse(t, s.args("--bake", "10m", "--yes")...)
	c.sees(t, "ams1: ")
	theirs := s.publish(t, rulesOf(7), "bob", "us-east")
	r := c.end(t)
	require.Equal(t, term.StatusConflict, r.status)
	require.Contains(t, r.errOut, "canary on ams1: us-east: bob applied "+theirs.Version)
	s.gone(t)
	require.Equal(t, s.old.Version, s.current(t, "eu-west"))
}

// Somebody applies a version everywhere, which ends the trial: the report says what runs now.
func testCanaryReplaced(t *testing.T, f *testFleet) {
	s := newSite(t, f, load(10, 0, 0))
	c := s.converse(t, s.args("--bake", "10m", "--interval", "2s", "--yes", "-o", "json")...)
	c.sees(t, "ams1: ")
	theirs := s.publish(t, rulesOf(7), "bob", "eu-west")
	s.publish(t, rulesOf(7), "bob", "us-east")
	require.NoError(t, s.rules("eu-west").EndCanary(t.Context(), "ams1"))
	r := c.end(t)
	require.Equal(t, term.StatusConflict, r.status)
	require.Contains(t, r.errOut, "the canary is gone, and this changed no region")
	for _, region := range parse[changeReport](t, r.out).Regions {
		require.Equal(t, rollout.Lost, region.Result)
		require.Equal(t, theirs.Version, region.Now.Version, region.Region)
	}
}

func testCanaryRefused(t *testing.T, f *testFleet) {
	s := newSite(t, f, load(10, 0, 0))
	s.canary.mu.Lock()
	s.canary.refuses, s.canary.reasons = s.next, []string{"rules[0].limit: must be odd"}
	s.canary.mu.Unlock()
	r := s.run(t, s.args("--bake", "10m", "--yes")...)
	require.Equal(t, term.StatusFailed, r.status)
	require.Contains(t, r.errOut, "node ams1-1 refuses "+s.next+":\n    rules[0].limit: must be odd\n")
	s.unchanged(t)

	s.canary.mu.Lock()
	s.canary.refuses, s.canary.stays = "", true
	s.canary.mu.Unlock()
	r = s.run(t, s.args("--bake", "10m", "--yes", "--wait", "500ms")...)
	require.Equal(t, term.StatusFailed, r.status)
	require.Contains(t, r.errOut, "its edges did not all follow within 500ms: ams1-1 runs "+s.old.Version)
	s.gone(t)
}

func testCanaryElsewhere(t *testing.T, f *testFleet) {
	s := newSite(t, f, load(10, 0, 0))
	r := s.run(t, "rules", "apply", s.file, "--yes", "--canary", "mars")
	require.Equal(t, term.StatusUsage, r.status)
	require.Contains(t, r.errOut, "--canary mars: no edge of that site passes its check; there are edges in ams1, fra1, iad1 (nothing was changed)")
	for _, bad := range [][]string{{"--bake", "0s"}, {"--interval", "1h"}, {"--min-requests", "-1"}, {"--max-limited-increase", "2"}, {"--max-5xx-increase", "NaN"}} {
		require.Equal(t, term.StatusUsage, s.run(t, append([]string{"rules", "apply", s.file, "--yes", "--canary", "ams1"}, bad...)...).status, "%v", bad)
	}
	require.Equal(t, term.StatusUsage, s.run(t, "rules", "apply", s.file, "--yes", "--bake", "1m").status)

	theirs := consul.NewPointer([]byte(rulesOf(9)), "bob", time.Now())
	ends := time.Now().Add(time.Hour)
	theirs.ExpiresAt = &ends
	s.try(t, "eu-west", "ams1", theirs)
	r = s.run(t, s.args("--yes")...)
	require.Equal(t, term.StatusConflict, r.status)
	require.Contains(t, r.errOut, "eu-west: bob has been trying "+theirs.Version+" on ams1")
	left, _, err := s.rules("eu-west").Canary(t.Context(), "ams1")
	require.NoError(t, err)
	require.Equal(t, "bob", left.AppliedBy)
}

// A node that restarts counts from zero, and its figures in between are lost.
func testCanaryRestarted(t *testing.T, f *testFleet) {
	looks := 0
	s := newSite(t, f, func(e *stub, version string) {
		if looks++; looks%3 == 0 {
			e.requests, e.limited = map[string]float64{}, 0
		}
		load(50, 1, 0)(e, version)
	})
	r := s.good(t, s.args("--bake", "1s", "--yes", "-o", "json")...)
	report := parse[changeReport](t, r.out)
	require.InDelta(t, 0.02, report.Canary.Canary.LimitedShare(), 0.001)
	require.Zero(t, int(report.Canary.Canary.Requests)%50)
}

// Somebody else's canary replaces ours and is left alone.
func testCanaryTakenOver(t *testing.T, f *testFleet) {
	s := newSite(t, f, load(10, 0, 0))
	c := s.converse(t, s.args("--bake", "10m", "--yes")...)
	c.sees(t, "ams1: ")
	theirs := consul.NewPointer([]byte(rulesOf(9)), "bob", time.Now())
	ends := time.Now().Add(time.Hour)
	theirs.ExpiresAt = &ends
	s.try(t, "eu-west", "ams1", theirs)
	r := c.end(t)
	require.Equal(t, term.StatusConflict, r.status)
	require.Contains(t, r.errOut, "eu-west: somebody else ended it, or began another")
	left, _, err := s.rules("eu-west").Canary(t.Context(), "ams1")
	require.NoError(t, err)
	require.Equal(t, theirs.Version, left.Version)
}

// A canary is not promoted if an edge's figures cannot be read.
func testCanarySilent(t *testing.T, f *testFleet) {
	looks := 0
	s := newSite(t, f, func(e *stub, version string) {
		looks++
		e.silent = looks == 3 // from the next request on
		load(100, 0, 0)(e, version)
	})
	r := s.run(t, s.args("--bake", "1s", "--yes")...)
	require.Equal(t, term.StatusFailed, r.status)
	require.Regexp(t, `not promoted: the figures of ams1-1 \(node ams1-1: admin \S+ answered 500: the stub is silent\) could not be read at the end`, r.errOut)
	s.canary.mu.Lock()
	s.canary.silent = false
	s.canary.mu.Unlock()
	s.unchanged(t)
}

// Consul is gone when the canary is to be removed: it expires on its edges.
func TestCanaryCannotBeRemoved(t *testing.T) {
	t.Parallel()
	f := startFleet(t, "eu-west")
	s := &site{testFleet: f, old: f.publish(t, rulesOf(1), "ana", f.names...), file: write(t, "rules.yaml", rulesOf(2))}
	f.edge(t, "eu-west", "ams1", "ams1-1", func(e *stub) { e.traffic = load(10, 0, 0) })
	c := s.converse(t, s.args("--bake", "10m", "--yes", "--timeout", "1s")...)
	c.sees(t, "ams1: ")
	f.consuls["eu-west"].Kill()
	r := c.end(t)
	require.Equal(t, term.StatusFailed, r.status)
	require.Regexp(t, fmt.Sprintf(`the canary could not be removed; it expires at \d{4}-.*Z:\neu-west: consul %s`, f.consuls["eu-west"].Addr()), r.errOut)
}
