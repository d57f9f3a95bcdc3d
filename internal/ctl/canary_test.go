package ctl

import (
	"fmt"
	"math"
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/ctl/term"
	"github.com/weir-edge/weir/pkg/region/consul"
)

// site is a fleet whose site ams1 tries rules while two other sites do not.
type site struct {
	*testFleet
	old  consul.Pointer
	file string
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
	others := func(e *stub) { e.traffic = load(100, 2, 0) }
	for _, e := range []*stub{
		f.edge(t, "eu-west", "ams1", "ams1-1", func(e *stub) { e.traffic = onTrial }),
		f.edge(t, "eu-west", "fra1", "fra1-1", others), f.edge(t, "us-east", "iad1", "iad1-1", others),
	} {
		require.Eventually(t, func() bool { return e.runs() == s.old.Version }, patience, tick)
	}
	return s
}

// args returns the arguments of a trial that reads metrics every 100 ms.
func (s *site) args(more ...string) []string {
	return append([]string{"rules", "apply", s.file, "--canary", "ams1", "--interval", "100ms"}, more...)
}

// startTrial begins a trial on the only site of a fleet, which stops where it writes text.
func startTrial(t *testing.T, text, bake string) (s *site, c *session, resume func()) {
	f := startFleet(t, "eu-west")
	s = &site{testFleet: f, old: f.publish(t, rulesOf(1), "ana", f.names...), file: write(t, "rules.yaml", rulesOf(2))}
	f.edge(t, "eu-west", "ams1", "ams1-1", func(e *stub) { e.traffic = load(10, 0, 0) })
	c, resume = f.stopped(t, text, s.args("--bake", bake, "--yes", "--timeout", "5s")...)
	return s, c, resume
}

// Consul is unreachable when the canary should be removed: it expires on its edges.
func TestCanaryCannotBeRemoved(t *testing.T) {
	t.Parallel()
	s, c, resume := startTrial(t, " left", "1s")
	s.consuls["eu-west"].Kill()
	resume()
	r := c.end(t)
	require.Equal(t, term.StatusFailed, r.status)
	require.Regexp(t, fmt.Sprintf(`the canary could not be removed; it expires at \d{4}-.*Z:\neu-west: consul %s`, s.consuls["eu-west"].Addr()), r.errOut)
}

// Consul is unreachable before the site gets anything.
func TestCanaryNeverSet(t *testing.T) {
	t.Parallel()
	s, c, resume := startTrial(t, "before the change", "10m")
	s.consuls["eu-west"].Kill()
	resume()
	r := c.end(t)
	require.Equal(t, term.StatusFailed, r.status)
	require.Contains(t, r.errOut, "nothing was changed")
}

// The next wave must not follow a changed region whose Consul does not answer. One failed check
// does not halt the rollout.
func TestRegionVanishesInASoak(t *testing.T) {
	t.Parallel()
	f := startFleet(t, "eu-west", "us-east")
	s := newSite(t, f, load(100, 2, 0))
	next := versionOf(rulesOf(2))
	var asked, from, to atomic.Int64 // reads of the pointer; which of them fail
	from.Store(math.MaxInt64)
	vanishing := f.faulty(t, "eu-west", func(w http.ResponseWriter, r *http.Request) bool {
		if n := asked.Add(1); n < from.Load() || n >= to.Load() {
			return false
		}
		http.Error(w, "no", http.StatusInternalServerError)
		return true
	})
	wave := func(soak string) (*session, func()) {
		return vanishing.stopped(t, " left", "rules", "apply", s.file, "--yes", "--waves", "1,rest", "--soak", soak, "--interval", "100ms")
	}
	c, resume := wave("1s")
	to.Store(math.MaxInt64)
	from.Store(0)
	resume()
	r := c.end(t)
	require.Equal(t, term.StatusPartial, r.status)
	require.Regexp(t, `halted after wave 1 of 2: the figures of eu-west: .* could not be read at the end`, r.errOut)
	require.Equal(t, s.old.Version, f.current(t, "us-east"))

	from.Store(math.MaxInt64)
	c, resume = wave("6s") // two reads fail long before its end
	to.Store(asked.Load() + 2)
	from.Store(0)
	resume()
	r = c.end(t)
	require.Zero(t, r.status, r.errOut)
	require.Equal(t, next, f.current(t, "us-east"))
}
