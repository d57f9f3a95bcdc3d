package ctl

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/clientlist"
	"github.com/weir-edge/weir/internal/ctl/term"
	"github.com/weir-edge/weir/pkg/region"
	"github.com/weir-edge/weir/pkg/region/consul"
)

// A change of one region is rolled back, and again, in that region only, although another
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

	// Without --region, --partial leaves it out, and the history says so.
	require.Contains(t, f.refused(t, term.StatusFailed, "undo", "--yes"), "--partial continues with us-east")
	text := f.refused(t, term.StatusPartial, "undo", "--partial", "--yes")
	require.Contains(t, text, "is the last change of the other regions (eu-west may have a later one)")
	require.Contains(t, text, "left to do:  regionctl undo rules --of "+versionOf(rulesOf(1))+" --region eu-west")
	require.Equal(t, versionOf(rulesOf(2)), f.current(t, "us-east"))
	require.Contains(t, f.run(t, "rules", "history").out, "(not reached: eu-west)")
	require.Contains(t, f.run(t, "audit", "list").out, "(not reached: eu-west)")
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
	require.Contains(t, text, "left to do:  regionctl undo rules --to "+old+" --region us-east")
	require.NotContains(t, text, "again")
	require.Equal(t, old, f.current(t, "eu-west"))
	f.consuls["us-east"].Start()
	f.good(t, "undo", "rules", "--to", old, "--region", "us-east", "--yes")
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
		expired.AppliedAt, expired.AppliedBy, expired.ExpiresAt, expired.Successor = end, "bob", &end, &consul.Named{Version: p.Version, SHA256: p.SHA256}
		done, err := f.settings(name).Activate(t.Context(), consul.Change{Pointer: expired}, index)
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
	ana, resume := f.stopped(t, " left", "rules", "apply", write(t, "next.yaml", rulesOf(2)), "--by", "ana", "--yes", "--waves", "1,rest", "--soak", "200ms", "--interval", "100ms", "--min-requests", "0")
	bob := f.converse(t, "undo", "rules", "--by", "bob")
	bob.sees(t, "Apply to eu-west?")
	resume()
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

// The topology is rolled back like the rules: with a region down, after a kill in the middle of a
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
	require.NotContains(t, f.good(t, "topology", "apply", "--resume", "--yes", "--by", "bob").errOut, "overrides", "what it continues")
	for _, name := range f.names {
		runs(name, 3)
	}

	f.consuls["us-east"].Kill()
	require.Contains(t, f.refused(t, term.StatusFailed, "undo", "topology", "--yes"), "nothing was changed: us-east cannot be reached, so it is unknown whether the last change was there:\n")
	f.good(t, "undo", "topology", "--yes", "--region", "eu-west")
	runs("eu-west", 1)
}

// drains of a region, as a router reads them.
func (f *testFleet) drains(t *testing.T, names ...string) (all []region.Drains) {
	t.Helper()
	for _, name := range names {
		d, _, err := region.PublishedDrains(t.Context(), f.open[name])
		require.NoError(t, err)
		all = append(all, *d)
	}
	return all
}

// The last drain, or its end, is rolled back like a document: with who, why and since when, and by a
// second undo again.
func TestUndoDrains(t *testing.T) {
	t.Parallel()
	f := startFleet(t, "eu-west", "us-east")
	f.good(t, "topology", "apply", write(t, "topology.yaml", topologyOf(1)), "--yes")
	drain := func(reason, by string, status int) {
		t.Helper()
		require.Equal(t, status, f.run(t, "drain", "ams1", "--message", reason, "--by", by, "--yes", "--force", "--wait", "0").status)
	}
	drained := func(names ...string) string {
		t.Helper()
		all := f.drains(t, names...)
		if d := region.Oldest("ams1", all, region.Ended("ams1", all)); d != nil {
			return d.Who + ": " + d.Why
		}
		return ""
	}
	both := func() []string { return []string{drained("eu-west"), drained("us-east")} }
	require.Contains(t, f.refused(t, term.StatusUsage, "undo", "drain", "--yes"), "no drains are active; nothing was changed")
	drain("kernel", "ana", 0)
	since := f.drains(t, "us-east")[0].Begun["ams1"].Since
	drain("disk", "bob", 0)
	drain("disk", "carl", 0) // changes nothing
	f.refused(t, term.StatusConflict, "undo", "drain", "--yes", "--of", "ffff")
	r := f.good(t, "undo", "--yes")
	require.Contains(t, r.errOut, " of bob, ")
	require.Contains(t, r.errOut, "is the last change: drain ams1: disk")
	require.Regexp(t, "ams1: drained by bob since .*: disk → drained by ana since .*: kernel", r.out)
	require.Equal(t, []string{"ana: kernel", "ana: kernel"}, both())
	f.good(t, "undrain", "ams1", "--yes")
	require.Equal(t, []string{"", ""}, both())
	f.good(t, "undo", "--yes", "--force")
	require.Equal(t, []string{"ana: kernel", "ana: kernel"}, both())
	require.Equal(t, since, f.drains(t, "us-east")[0].Begun["ams1"].Since)
	f.good(t, "undo", "drain", "--yes") // twice
	require.Equal(t, []string{"", ""}, both())
	f.good(t, "undo", "drain", "--yes", "--force")
	require.Equal(t, []string{"ana: kernel", "ana: kernel"}, both())

	f.good(t, "topology", "apply", write(t, "topology.yaml", topologyOf(2)), "--yes")
	f.good(t, "undo", "--yes")
	require.Equal(t, "ana: kernel", drained("eu-west"), "the topology changed last")
	f.good(t, "audit", "verify")

	// With a region down, and once it is back.
	undo := func() {
		t.Helper()
		require.Contains(t, f.refused(t, term.StatusFailed, "undo", "drain", "--yes"), "nothing was changed: us-east cannot be reached, so it is unknown whether the last change was there:")
		f.good(t, "undo", "drain", "--yes", "--region", "eu-west", "--force")
	}
	f.consuls["us-east"].Kill()
	require.Equal(t, term.StatusPartial, f.run(t, "undrain", "ams1", "--yes").status)
	undo()
	require.Equal(t, "ana: kernel", drained("eu-west"))
	f.consuls["us-east"].Start()
	f.good(t, "undrain", "ams1", "--yes")
	f.consuls["us-east"].Kill()
	undo()
	f.consuls["us-east"].Start()
	require.Equal(t, []string{"ana: kernel", "", "ana: kernel"}, append(both(), drained("eu-west", "us-east")))
	f.good(t, "undrain", "ams1", "--yes")
	drain("kernel", "ana", 0)
	f.consuls["us-east"].Kill()
	undo()
	f.consuls["us-east"].Start()
	require.Equal(t, []string{"", "ana: kernel", ""}, append(both(), drained("eu-west", "us-east")))
}

// An undrain that only tells a region which is away that drains are over has put nothing back that
// undo could take out: the change before it is the last one.
func TestUndoPassesByWhatDidNothing(t *testing.T) {
	t.Parallel()
	f := startFleet(t, "eu-west", "us-east")
	f.good(t, "topology", "apply", write(t, "topology.yaml", topologyOf(1)), "--yes")
	f.consuls["us-east"].Kill()
	require.Equal(t, term.StatusPartial, f.run(t, "undrain", "ams1", "--yes").status)
	f.consuls["us-east"].Start()
	require.Contains(t, f.refused(t, term.StatusUsage, "undo", "drain", "--yes", "--region", "eu-west"), "no change of the drains did anything that undo could put back")

	f.good(t, "drain", "iad1", "--message", "kernel", "--by", "ana", "--yes", "--force", "--wait", "0")
	f.publish(t, rulesOf(1), "eve", f.names...)
	f.publish(t, rulesOf(2), "eve", f.names...)
	f.consuls["us-east"].Kill()
	for range 2 {
		require.Equal(t, term.StatusPartial, f.run(t, "undrain", "ams1", "--yes").status)
	}
	f.consuls["us-east"].Start()
	f.good(t, "undo", "--yes")
	require.Equal(t, versionOf(rulesOf(1)), f.current(t, "eu-west"), "the rules were changed last")
	require.Contains(t, f.good(t, "undo", "drain", "--yes").errOut, "is the last change: drain iad1: kernel")
	for _, want := range []int{0, 1} { // and twice
		for _, d := range f.drains(t, f.names...) {
			require.Len(t, d.Begun, want)
		}
		if want == 0 {
			f.good(t, "undo", "drain", "--yes", "--force")
		}
	}
	f.good(t, "audit", "verify")
}

// A drain that reached only one region, because regionctl was killed, is rolled back there.
func TestUndoDrainAfterAKill(t *testing.T) {
	t.Parallel()
	f := startFleet(t, "eu-west", "us-east")
	f.good(t, "topology", "apply", write(t, "topology.yaml", topologyOf(1)), "--yes")
	f.good(t, "drain", "iad1", "--message", "kernel", "--yes", "--force", "--wait", "0")
	f.killWhen(t, "us-east", false, func(r *http.Request) bool {
		if !writes(r, "/drain/current") {
			return false
		}
		for len(f.drains(t, "eu-west")[0].Begun) < 2 { // both are written at once
		}
		return true
	}, "drain", "ams1", "--message", "disk", "--by", "ana", "--yes", "--force", "--wait", "0")
	all := f.drains(t, f.names...)
	require.Equal(t, []int{2, 1}, []int{len(all[0].Begun), len(all[1].Begun)})
	require.Regexp(t, "is the last change: drain ams1: disk; us-east keeps [0-9a-f]{12}\n", f.good(t, "undo", "--yes", "--by", "bob").errOut)
	require.Equal(t, all[1].Begun, f.drains(t, "eu-west")[0].Begun)
	f.good(t, "audit", "verify")
}

// Of two operators, the second learns what the first has changed meanwhile; two that drain different
// PoPs do not disturb each other.
func TestUndoDrainOfTwo(t *testing.T) {
	t.Parallel()
	f := startFleet(t, "eu-west", "us-east")
	f.good(t, "topology", "apply", write(t, "topology.yaml", topologyOf(1)), "--yes")
	var ended [2]chan result
	for i, pop := range []string{"ams1", "iad1"} {
		ended[i] = make(chan result, 1)
		go func() {
			ended[i] <- f.run(t, "drain", pop, "--message", pop, "--by", pop, "--yes", "--force", "--wait", "0")
		}()
	}
	for _, one := range ended {
		r := <-one
		require.Zero(t, r.status, r.errOut)
	}
	for _, d := range f.drains(t, f.names...) {
		require.Len(t, d.Begun, 2)
	}
	bob := f.converse(t, "undo", "drain", "--by", "bob")
	bob.sees(t, "Apply to ") // where the later of the two was the later one
	f.good(t, "undrain", "iad1", "--yes", "--by", "carl")
	bob.answer(t, "y")
	r := bob.end(t)
	require.Equal(t, term.StatusConflict, r.status, r.errOut)
	require.Regexp(t, "nothing was changed anywhere: (eu-west|us-east): carl changed ", r.errOut)
	for _, d := range f.drains(t, f.names...) {
		require.Len(t, d.Begun, 1)
	}
}

// The last change of the client lists is rolled back, whatever its size; a list that is followed
// keeps its own.
func TestUndoClients(t *testing.T) {
	t.Parallel()
	f := startFleet(t, "eu-west", "us-east")
	act := func(args ...string) {
		t.Helper()
		f.good(t, append([]string{"clients"}, append(args, "--by", "ana", "--wait", "0")...)...)
	}
	listed := func(name string) (list []string) {
		t.Helper()
		l, err := clientlist.Read(t.Context(), f.open[name])
		require.NoError(t, err)
		if n := len(l.Entries()); n > 3 {
			return make([]string, n)
		}
		for _, e := range l.Entries() {
			list = append(list, fmt.Sprintf("%s %s by %s: %s", e.Action, e.Network, e.By, e.Reason))
		}
		return list
	}
	both := func(want ...string) {
		t.Helper()
		for _, name := range f.names {
			list := listed(name)
			require.Equal(t, len(want), len(list), name)
			require.Equal(t, want, list, name)
		}
	}
	undo := func(args ...string) result {
		t.Helper()
		return f.good(t, append([]string{"undo", "--yes", "--wait", "0", "--by", "bob"}, args...)...)
	}
	one, two := "block 192.0.2.1/32 by ana: x", "allow 192.0.2.2/32 by ana: y"
	act("block", "192.0.2.1", "--message", "x")
	undo()
	both()
	undo("clients") // twice
	both(one)
	act("allow", "192.0.2.2", "--message", "y")
	act("unblock", "192.0.2.1", "192.0.2.2")
	r := undo()
	require.Contains(t, r.errOut, "is the last change: remove 192.0.2.1/32, 192.0.2.2/32")
	require.Regexp(t, "networks, with those that expired: 0 in list [0-9a-f]{12} → 2 in list [0-9a-f]{12}", r.out)
	both(one, two)
	act("block", "192.0.2.3", "--message", "z", "--region", "us-east")
	undo()
	both(one, two)

	// A killed import of many networks has happened everywhere or nowhere in a region.
	var text strings.Builder
	for i := range clientlist.Max - 2 {
		fmt.Fprintf(&text, "10.%d.%d.%d\n", i>>16, i>>8&255, i&255)
	}
	many := []string{"clients", "import", write(t, "many.txt", text.String()), "--message", "many", "--by", "ana", "--wait", "0"}
	f.killWhen(t, "us-east", false, func(r *http.Request) bool { return writes(r, "/clients/current") }, many...)
	require.Len(t, listed("us-east"), 2)
	f.good(t, many...)
	require.Len(t, listed("us-east"), clientlist.Max)
	undo()
	both(one, two)
	undo()
	require.Len(t, listed("us-east"), clientlist.Max)
	undo()
	f.good(t, "audit", "verify")

	f.consuls["us-east"].Kill()
	require.Contains(t, f.refused(t, term.StatusFailed, "undo", "clients", "--yes"), "nothing was changed: us-east cannot be reached, so it is unknown whether the last change was there:")
	undo("clients", "--region", "eu-west")
	f.consuls["us-east"].Start()
	require.Len(t, listed("eu-west"), clientlist.Max)
	undo("clients")
	both(one, two)

	f.publish(t, rulesOf(1), "eve", f.names...)
	f.publish(t, rulesOf(2), "eve", f.names...)
	sync := []string{"clients", "sync", "--name", "drop", "--once", "--from"}
	f.good(t, append(sync, write(t, "drop.txt", "198.51.100.0/24"))...)
	undo() // the rules were changed last by hand
	require.Equal(t, versionOf(rulesOf(1)), f.current(t, "us-east"))
	require.Contains(t, f.refused(t, term.StatusConflict, "undo", "clients", "--yes"), "nothing was changed: list:drop made the last change of the client networks, at ")
	require.Len(t, listed("eu-west"), 3)
	act("block", "192.0.2.3", "--message", "z")
	f.good(t, append(sync, write(t, "drop.txt", "198.51.100.0/24\n203.0.113.0/24"))...)
	require.Contains(t, f.refused(t, term.StatusConflict, "undo", "--yes"), "list:drop made the last change", "not an older change than that of ana")
}
