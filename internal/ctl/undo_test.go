package ctl

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/ctl/term"
	"github.com/weir-edge/weir/pkg/region/consul"
)

// A change of one region is taken back, and brought back, in that region only, although another
// region has the version that it had before.
func TestUndoOneRegionTwice(t *testing.T) {
	t.Parallel()
	f := startFleet(t, "eu-west", "us-east")
	f.publish(t, rulesOf(1), "eve", f.names...)
	f.publish(t, rulesOf(2), "eve", f.names...)
	f.good(t, "rules", "apply", write(t, "three.yaml", rulesOf(3)), "--region", "us-east", "--yes")
	for _, want := range []int{2, 3} {
		r := f.good(t, "undo", "rules", "--yes")
		require.Equal(t, versionOf(rulesOf(want)), f.current(t, "us-east"), r.errOut)
		require.Equal(t, versionOf(rulesOf(2)), f.current(t, "eu-west"), r.errOut)
	}
}

// Without a region, it is unknown which change was the last.
func TestUndoWithoutARegion(t *testing.T) {
	t.Parallel()
	f := startFleet(t, "eu-west", "us-east")
	f.publish(t, rulesOf(1), "eve", f.names...)
	f.publish(t, rulesOf(2), "eve", f.names...)
	f.good(t, "rules", "apply", write(t, "three.yaml", rulesOf(3)), "--region", "eu-west", "--yes")
	f.consuls["eu-west"].Kill()
	require.Contains(t, f.refused(t, term.StatusFailed, "undo", "rules", "--yes"), "nothing was changed: eu-west cannot be reached, so it is unknown whether the last change was there:\neu-west: consul ")
	require.Equal(t, versionOf(rulesOf(2)), f.current(t, "us-east"))
	f.good(t, "undo", "rules", "--yes", "--region", "us-east")
	require.Equal(t, versionOf(rulesOf(1)), f.current(t, "us-east"))
}

// The only region that waves have changed dies.
func TestUndoWithoutTheChangedRegion(t *testing.T) {
	t.Parallel()
	f := startFleet(t, "eu-west", "us-east")
	f.publish(t, rulesOf(3), "eve", f.names...)
	f.running(t)
	f.halt(t, 2, "eu-west", "us-east")
	f.consuls["eu-west"].Kill()
	text := f.refused(t, term.StatusFailed, "undo", "rules", "--yes")
	require.Contains(t, text, "nothing was changed: the rollout of "+versionOf(rulesOf(2)))
	require.Contains(t, text, "eu-west cannot be reached")
	require.Equal(t, versionOf(rulesOf(1)), f.current(t, "us-east"))
}

// What is left to do once a region is back is a command that does not undo the undo.
func TestUndoNamesWhatIsLeft(t *testing.T) {
	t.Parallel()
	f := startFleet(t, "eu-west", "us-east")
	f.running(t)
	f.halt(t, 2, "eu-west", "us-east")
	f.consuls["us-east"].Kill()
	text := f.refused(t, term.StatusPartial, "undo", "rules", "--yes")
	old := versionOf(rulesOf(1))
	require.Contains(t, text, "left to do:  regionctl rules rollback --to "+old+" --region us-east")
	require.NotContains(t, text, "again")
	require.Equal(t, old, f.current(t, "eu-west"))
	f.consuls["us-east"].Start()
	f.good(t, "rules", "rollback", "--to", old, "--region", "us-east", "--yes")
	require.Equal(t, old, f.current(t, "eu-west"))
	require.Equal(t, old, f.current(t, "us-east"))
}

// Settings that have expired were not changed last.
func TestUndoAfterAnExpiry(t *testing.T) {
	t.Parallel()
	f := startFleet(t, "eu-west", "us-east")
	f.good(t, "shedder", "set", "signals.inflight.high=400", "--yes", "--wait", "0", "--by", "ana")
	f.good(t, "shedder", "set", "signals.inflight.high=300", "--yes", "--wait", "0", "--by", "ana")
	f.publish(t, rulesOf(1), "eve", f.names...)
	f.publish(t, rulesOf(2), "eve", f.names...)
	for _, name := range f.names {
		p, index, err := f.settings(name).Current(t.Context())
		require.NoError(t, err)
		end := time.Now().Add(-time.Second)
		expired := *p
		expired.AppliedAt, expired.AppliedBy, expired.ExpiresAt, expired.Then = end, "bob", &end, &consul.Named{Version: p.Version, SHA256: p.SHA256}
		done, err := f.settings(name).Point(t.Context(), consul.Change{Pointer: expired}, index)
		require.NoError(t, err)
		require.True(t, done)
	}
	f.good(t, "undo", "--yes")
	require.Equal(t, versionOf(rulesOf(1)), f.current(t, "eu-west"))
	r := f.good(t, "undo", "shedder", "--yes", "--wait", "0")
	require.Contains(t, r.errOut, " of ana, ")
	require.NotContains(t, r.errOut, "bob")
}

// Waves go on while an operator reads what undo would do.
func TestUndoWhileWavesGoOn(t *testing.T) {
	t.Parallel()
	f := startFleet(t, "eu-west", "us-east")
	f.running(t)
	ana := f.converse(t, "rules", "apply", write(t, "next.yaml", rulesOf(2)), "--by", "ana", "--yes", "--waves", "1,rest", "--soak", "5s", "--interval", "100ms", "--min-requests", "0")
	ana.sees(t, " left")
	bob := f.converse(t, "undo", "rules", "--by", "bob")
	bob.sees(t, "Apply to eu-west?")
	require.Zero(t, ana.end(t).status)
	bob.answer(t, "y")
	r := bob.end(t)
	require.Equal(t, term.StatusConflict, r.status, r.errOut)
	require.Contains(t, r.errOut, "nothing was changed anywhere: us-east: ana applied "+versionOf(rulesOf(2)))
	for _, name := range f.names {
		require.Equal(t, versionOf(rulesOf(2)), f.current(t, name))
	}
}

// --of names the change that is meant: a page may show an old state.
func TestUndoOf(t *testing.T) {
	t.Parallel()
	f := startFleet(t, "eu-west", "us-east")
	one, two, three := versionOf(rulesOf(1)), versionOf(rulesOf(2)), versionOf(rulesOf(3))
	f.publish(t, rulesOf(3), "eve", f.names...)
	f.running(t)
	f.halt(t, 2, "eu-west", "us-east")
	require.Contains(t, f.refused(t, term.StatusConflict, "undo", "rules", "--yes", "--of", three), "nothing was changed: the rollout of "+two)
	require.Equal(t, two, f.current(t, "eu-west"))
	f.good(t, "undo", "rules", "--yes", "--of", two)
	require.Contains(t, f.refused(t, term.StatusConflict, "undo", "rules", "--yes", "--of", two), "nothing was changed: eu-west runs "+one+", not "+two)
	require.Equal(t, one, f.current(t, "eu-west"))

	f.good(t, "shedder", "set", "signals.inflight.high=400", "--yes", "--wait", "0")
	set, _, err := f.settings("eu-west").Current(t.Context())
	require.NoError(t, err)
	f.good(t, "shedder", "set", "enabled=false", "--for", "1h", "--yes", "--wait", "0")
	off, _, err := f.settings("eu-west").Current(t.Context())
	require.NoError(t, err)
	f.refused(t, term.StatusConflict, "undo", "shedder", "--yes", "--wait", "0", "--of", set.Version)
	f.good(t, "undo", "shedder", "--yes", "--wait", "0", "--of", "ffff,"+off.Version)
	f.good(t, "shedder", "set", "enabled=false", "--for", "1h", "--yes", "--wait", "0", "--region", "us-east")
	f.good(t, "undo", "shedder", "--yes", "--wait", "0")
	require.Contains(t, f.refused(t, term.StatusConflict, "undo", "rules", "--yes", "--of", off.Version), "nothing was changed")
}

// The topology is taken back like the rules: with a region down, after a kill in the middle of a
// change, and by undo without a kind if it changed last.
func TestUndoTopology(t *testing.T) {
	t.Parallel()
	f := startFleet(t, "eu-west", "us-east")
	apply := func(n int, how ...string) []string {
		return append([]string{"topology", "apply", write(t, "topology.yaml", topologyOf(n)), "--by", "ana", "--yes"}, how...)
	}
	runs := func(name string, n int) {
		t.Helper()
		p, _, err := f.open[name].Documents("topology").Current(t.Context())
		require.NoError(t, err)
		require.Equal(t, versionOf(topologyOf(n)), p.Version, name)
	}
	f.publish(t, rulesOf(1), "eve", f.names...)
	f.good(t, apply(1)...)
	f.good(t, apply(2)...)
	r := f.good(t, "undo", "--yes")
	require.Contains(t, r.out, "~ pop ams1: addresses 203.0.113.2 → 203.0.113.1\n")
	for _, name := range f.names {
		runs(name, 1)
	}
	require.Equal(t, versionOf(rulesOf(1)), f.current(t, "eu-west"))

	f.kill(t, false, apply(3)...)
	runs("eu-west", 3)
	require.Contains(t, f.good(t, "topology", "rollout").out, "eu-west has it\n  us-east has what it had, "+versionOf(topologyOf(1)))
	f.good(t, "undo", "--yes", "--by", "bob")
	for _, name := range f.names {
		runs(name, 1)
	}
	require.Contains(t, f.good(t, "topology", "rollout").out, "every rollout of the topology is finished")
	f.good(t, "audit", "verify")

	f.kill(t, false, apply(3)...)
	f.good(t, "topology", "apply", "--resume", "--yes", "--by", "bob")
	for _, name := range f.names {
		runs(name, 3)
	}

	f.consuls["us-east"].Kill()
	require.Contains(t, f.refused(t, term.StatusFailed, "undo", "topology", "--yes"), "nothing was changed: us-east cannot be reached, so it is unknown whether the last change was there:\n")
	f.good(t, "undo", "topology", "--yes", "--region", "eu-west")
	runs("eu-west", 1)
}
