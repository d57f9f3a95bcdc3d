package ctl

import (
	"net/http"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/ctl/fleet"
	"github.com/weir-edge/weir/internal/ctl/overview"
	"github.com/weir-edge/weir/internal/ctl/unfinished"
)

// dated is an answer of a Consul whose clock differs.
type dated struct {
	http.ResponseWriter
	ahead time.Duration
}

func (d dated) WriteHeader(status int) {
	d.Header().Set("Date", time.Now().Add(d.ahead).UTC().Format(http.TimeFormat))
	d.ResponseWriter.WriteHeader(status)
}

// elsewhen returns the fleet, Consuls and edges, with clocks ahead of this machine's.
func (f *testFleet) elsewhen(t *testing.T, ahead time.Duration) *testFleet {
	t.Helper()
	return f.keeping(t, func() time.Duration { return ahead })
}

// keeping returns the fleet with Consuls whose clocks are ahead by what ahead returns.
func (f *testFleet) keeping(t *testing.T, ahead func() time.Duration) *testFleet {
	t.Helper()
	through := f
	for _, name := range f.names {
		through = through.faulty(t, name, func(w http.ResponseWriter, r *http.Request) bool {
			forward(dated{w, ahead()}, r, f.consuls[name].Addr())
			return true
		})
	}
	return through
}

// The operator's clock and the fleet's are hours apart: expiry follows the fleet's.
func TestClocksApart(t *testing.T) {
	t.Parallel()
	f := func(ahead time.Duration, way string) func(*testing.T, *testFleet) {
		return func(t *testing.T, f *testFleet) {
			through := f.elsewhen(t, ahead)
			byTheirs := func(at time.Time) { t.Helper(); require.WithinDuration(t, time.Now().Add(ahead), at, time.Hour) }
			through.good(t, "rules", "apply", write(t, "one.yaml", rulesOf(1)), "--yes", "--wait", "0")
			traffic := func(s *stub) { s.traffic, s.ahead = load(100, 2, 0), ahead }
			for _, s := range []*stub{f.edge(t, "eu-west", "ams1", "ams1-1", traffic), f.edge(t, "us-east", "iad1", "iad1-1", traffic)} {
				require.Eventually(t, func() bool { return s.runs() == versionOf(rulesOf(1)) }, patience, tick)
			}
			// The stubs date their answers by this machine's clock, so they differ from their
			// Consuls.
			looked := through.good(t, "status", "-o", "json").out
			off := parse[overview.Fleet](t, looked).Regions[0].PoPs[0].Nodes[0].Clock
			require.NotNil(t, off, looked)
			require.InDelta(t, -ahead.Seconds(), *off, 60)
			require.Regexp(t, "the clock of ams1-1 is 10[78]\\d\\d s (ahead of|behind) its region's", through.good(t, "status").out)
			require.Zero(t, *parse[overview.Fleet](t, f.good(t, "status", "-o", "json").out).Regions[0].PoPs[0].Nodes[0].Clock)
			next := versionOf(rulesOf(2))
			two := write(t, "two.yaml", rulesOf(2))

			c := through.converse(t, "rules", "apply", two, "--canary", "ams1", "--bake", "10m", "--interval", "100ms", "--yes")
			c.sees(t, " left") // its edge follows
			p, _, err := f.rules("eu-west").Canary(t.Context(), "ams1")
			require.NoError(t, err)
			byTheirs(p.AppliedAt)
			require.Equal(t, 11*time.Minute, p.ExpiresAt.Sub(p.AppliedAt))
			record, _, err := f.rules("eu-west").Rollout(t.Context())
			require.NoError(t, err)
			byTheirs(record.SeenAt)
			require.Equal(t, unfinished.Runs, parse[unfinished.Report](t, through.good(t, "rules", "rollout", "-o", "json").out).Rollout.State)
			status := parse[struct{ Regions []fleet.RegionView }](t, through.good(t, "rules", "status", "-o", "json").out)
			require.Equal(t, next, status.Regions[0].Canaries["ams1"].Version)
			c.cancel()
			require.Contains(t, c.end(t).errOut, "the canary was removed")

			r := through.good(t, "rules", "apply", two, "--canary", "ams1", "--bake", "500ms", "--interval", "100ms", "--yes")
			warned := regexp.MustCompile(`warning: the clock of this machine is (\S+) ` + way).FindStringSubmatch(r.errOut)
			require.NotNil(t, warned, r.errOut)
			by, err := time.ParseDuration(warned[1])
			require.NoError(t, err)
			require.InDelta(t, ahead.Abs().Seconds(), by.Seconds(), 60)
			require.Equal(t, next, f.current(t, "us-east"))

			// Temporary settings expire the same way, and only unexpired ones can be ended.
			through.good(t, "shedder", "set", "enabled=false", "--for", "1h", "--yes", "--wait", "0")
			settings, _, err := f.settings("eu-west").Current(t.Context())
			require.NoError(t, err)
			byTheirs(settings.AppliedAt)
			require.NotContains(t, through.good(t, "shedder", "show").out, "ended")
			through.good(t, "undo", "shedder", "--yes", "--wait", "0")
			// Date has whole seconds, so the end may appear a second away.
			require.Eventually(t, func() bool { return strings.Contains(through.run(t, "shedder", "show").out, "ended") }, patience, tick)
		}
	}
	inFleets(t, map[string]func(*testing.T, *testFleet){
		"operator behind": f(3*time.Hour, `behind the Consuls'; the change is dated by theirs`),
		"operator ahead":  f(-3*time.Hour, `ahead of the Consuls'`),
	})
}

// A canary that waited for another change, here for two hours, is watched for its whole bake.
func TestCanaryWaits(t *testing.T) {
	t.Parallel()
	f := startFleet(t, "eu-west")
	old := f.publish(t, rulesOf(1), "ana", f.names...)
	s := f.edge(t, "eu-west", "ams1", "ams1-1", func(e *stub) { e.traffic = load(10, 0, 0) })
	require.Eventually(t, func() bool { return s.runs() == old.Version }, patience, tick)
	release := f.hold(t, "eu-west", "ana")

	var passed atomic.Int64
	through := f.keeping(t, func() time.Duration { return time.Duration(passed.Load()) })
	c := through.converse(t, "rules", "apply", write(t, "two.yaml", rulesOf(2)), "--canary", "ams1", "--bake", "10m", "--interval", "100ms", "--yes")
	c.sees(t, "waiting for ana")
	passed.Store(int64(2 * time.Hour))
	release()
	c.sees(t, " left") // its edge follows
	p, _, err := f.rules("eu-west").Canary(t.Context(), "ams1")
	require.NoError(t, err)
	require.WithinDuration(t, time.Now().Add(2*time.Hour+11*time.Minute), *p.ExpiresAt, 10*time.Minute)
	c.cancel()
	require.Contains(t, c.end(t).errOut, "the canary was removed")
}
