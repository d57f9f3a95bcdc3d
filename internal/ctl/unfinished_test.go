package ctl

import (
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/ctl/term"
	"github.com/weir-edge/weir/internal/ctl/unfinished"
	"github.com/weir-edge/weir/pkg/region/consul"
)

// running publishes a document, with an edge in each region.
func (f *testFleet) running(t *testing.T) {
	t.Helper()
	old := f.publish(t, rulesOf(1), "eve", f.names...)
	for _, name := range f.names {
		s := f.edge(t, name, "pop-"+name, name+"-1")
		require.Eventually(t, func() bool { return s.runs() == old.Version }, patience, tick)
	}
}

// halt halts ana's waves after the first region.
func (f *testFleet) halt(t *testing.T, limit int, regions ...string) {
	t.Helper()
	ana := f.converse(t, "rules", "apply", write(t, "next.yaml", rulesOf(limit)), "--by", "ana", "--yes", "--waves", "1,rest", "--soak", "10m", "--interval", "100ms", "--region", strings.Join(regions, ","))
	ana.sees(t, " left")
	ana.cancel()
	require.Equal(t, term.StatusInterrupted, ana.end(t).status)
	require.Equal(t, versionOf(rulesOf(limit)), f.current(t, regions[0]))
}

// Two rollouts in different regions are unfinished. The later one, which changed nothing, does not
// hide the earlier one.
func TestTwoUnfinished(t *testing.T) {
	t.Parallel()
	f := startFleet(t, "eu-west", "ap-south", "us-east")
	f.running(t)
	f.halt(t, 2, "eu-west", "ap-south")
	bob := f.converse(t, "rules", "apply", write(t, "three.yaml", rulesOf(3)), "--by", "bob", "--yes", "--canary", "pop-us-east", "--bake", "10m", "--interval", "100ms", "--region", "us-east")
	bob.sees(t, " left")
	bob.cancel()
	require.Equal(t, term.StatusInterrupted, bob.end(t).status)

	four := []string{"rules", "apply", write(t, "four.yaml", rulesOf(4)), "--yes", "--waves", "1,rest", "--soak", "100ms", "--interval", "100ms", "--min-requests", "0"}
	require.Contains(t, f.refused(t, 4, four...), "nothing was changed: the rollout of "+versionOf(rulesOf(2))+", which ana began")
	require.Contains(t, f.good(t, "rules", "rollout").out, "rollout of "+versionOf(rulesOf(2))+" by ana")
	f.good(t, "undo", "rules", "--yes")
	for _, name := range f.names {
		require.Equal(t, versionOf(rulesOf(1)), f.current(t, name))
	}
}

// What a later rollout left behind when it was finished does not hide an earlier one.
func TestFinishedHidesNone(t *testing.T) {
	t.Parallel()
	f := startFleet(t, "eu-west", "us-east")
	f.running(t)
	f.halt(t, 2, "eu-west", "us-east")
	r, index, err := f.rules("us-east").Rollout(t.Context())
	require.NoError(t, err)
	later := *r
	later.By, later.BeganAt, later.Waves = "bob", r.BeganAt.Add(time.Second), [][]string{{"us-east"}}
	p := f.publish(t, rulesOf(3), "bob", "us-east")
	later.Named = consul.Named{Version: p.Version, SHA256: p.SHA256}
	_, err = f.rules("us-east").SetRollout(t.Context(), later, index)
	require.NoError(t, err)
	require.Contains(t, f.good(t, "rules", "rollout").out, "rollout of "+versionOf(rulesOf(2))+" by ana")
	f.good(t, "undo", "rules", "--yes")
	require.Equal(t, versionOf(rulesOf(1)), f.current(t, "eu-west"))
	require.Equal(t, versionOf(rulesOf(3)), f.current(t, "us-east"))
}

// Someone resumes a rollout, and finishes it, before another operator confirms to roll it back.
func TestResumedBefore(t *testing.T) {
	t.Parallel()
	f := func(asks string, args ...string) func(*testing.T, *testFleet) {
		return func(t *testing.T, f *testFleet) {
			f.running(t)
			f.halt(t, 2, "eu-west", "us-east")
			ana := f.converse(t, append(args, "--by", "ana")...)
			ana.sees(t, asks)
			f.good(t, "rules", "apply", "--resume", "--yes", "--by", "bob", "--soak", "100ms", "--min-requests", "0")
			ana.answer(t, "y")
			r := ana.end(t)
			for _, name := range f.names {
				require.Equal(t, versionOf(rulesOf(2)), f.current(t, name), "%s\n%s", name, r.errOut)
			}
			require.Equal(t, term.StatusConflict, r.status)
			require.Contains(t, r.errOut, "nothing was changed: eu-west: someone else began or ended a rollout meanwhile; see regionctl rules rollout")
		}
	}
	inFleets(t, map[string]func(*testing.T, *testFleet){
		"taken back": f("Apply to eu-west?", "undo", "rules"),
	})
}

// Two operators resume the same rollout. One of them does.
func TestResumedTwice(t *testing.T) {
	t.Parallel()
	f := startFleet(t, "eu-west", "us-east")
	f.running(t)
	f.halt(t, 2, "eu-west", "us-east")
	through := f
	resumed := sync.OnceFunc(func() {
		for _, name := range f.names {
			r, index, err := f.rules(name).Rollout(t.Context())
			if assert.NoError(t, err) {
				r.By, r.BeganAt, r.Halted = "bob", r.BeganAt.Add(time.Second), ""
				_, err = f.rules(name).SetRollout(t.Context(), *r, index)
				assert.NoError(t, err)
			}
		}
	})
	for _, name := range f.names {
		var looks atomic.Int64
		through = through.faulty(t, name, func(_ http.ResponseWriter, r *http.Request) bool {
			if r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/rules/rollout") && looks.Add(1) == 2 {
				resumed() // after the first look
			}
			return false
		})
	}
	r := through.run(t, "rules", "apply", "--resume", "--yes", "--soak", "100ms", "--min-requests", "0")
	require.Equal(t, term.StatusConflict, r.status, r.errOut)
	require.Contains(t, r.errOut, "nothing was changed: eu-west: someone else began or ended a rollout meanwhile; see regionctl rules rollout")
	require.Equal(t, "bob", parse[unfinished.Report](t, f.good(t, "rules", "rollout", "-o", "json").out).Rollout.By)
}

// A rollout to which a node objects, and that was forced, is resumed like any other, as long as
// nothing else objects: the force was for what it showed.
func TestResumeOfAForcedRollout(t *testing.T) {
	t.Parallel()
	f := startFleet(t, "eu-west", "us-east")
	f.running(t)
	for _, name := range f.names {
		f.edge(t, name, "pop-"+name, name+"-2", func(s *stub) { s.reads = 0 })
	}
	args := []string{"rules", "apply", write(t, "next.yaml", rulesOf(2)), "--by", "ana", "--yes", "--waves", "1,rest", "--soak", "10m", "--interval", "100ms", "--min-requests", "0", "--wait", "0"}
	require.Contains(t, f.refused(t, term.StatusFailed, args...), "--force changes it anyway")
	ana := f.converse(t, append(args, "--force")...)
	ana.sees(t, " left")
	ana.cancel()
	require.Equal(t, term.StatusInterrupted, ana.end(t).status)
	require.Equal(t, versionOf(rulesOf(1)), f.current(t, "us-east"))

	resume := []string{"rules", "apply", "--resume", "--yes", "--by", "bob", "--soak", "100ms"}
	wants := f.edge(t, "us-east", "pop-us-east", "us-east-3", func(s *stub) { s.signed = "0123456789abcdef" })
	refused := f.refused(t, term.StatusFailed, resume...)
	require.Contains(t, refused, "nothing was changed: us-east-3 in us-east accepts only what is signed by key 0123456789abcdef; sign it with --sign KEYFILE\n--force changes it anyway; that of the rollout covers only what it showed")
	require.NotContains(t, refused, "us-east-2")
	require.Equal(t, versionOf(rulesOf(1)), f.current(t, "us-east"))
	f.deregister(t, wants)
	f.good(t, resume...)
	require.Equal(t, versionOf(rulesOf(2)), f.current(t, "us-east"))
	for _, name := range f.names {
		h, _, err := f.rules(name).History(t.Context(), 1)
		require.NoError(t, err)
		require.Contains(t, h[0].Forced, name+"-2 in "+name, name)
	}
}
