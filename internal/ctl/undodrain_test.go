package ctl

import (
	"os"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/clientlist"
	"github.com/weir-edge/weir/internal/ctl/term"
	"github.com/weir-edge/weir/pkg/region"
	"github.com/weir-edge/weir/pkg/region/consul"
)

// A region whose drains cannot be read, or whose pointer to them is gone, keeps what it has until undo
// gives it what it had: a drain would forget the others.
func TestDrainsThatAreLost(t *testing.T) {
	t.Parallel()
	f := startFleet(t, "eu-west", "us-east")
	f.good(t, "topology", "apply", write(t, "topology.yaml", topologyOf(1)), "--yes")
	drain := func(pop string, status int) result {
		t.Helper()
		r := f.run(t, "drain", pop, "--message", "kernel", "--yes", "--force", "--wait", "0")
		require.Equal(t, status, r.status, r.errOut)
		return r
	}
	const key = "weir/drain/current"
	us, way := f.consuls["us-east"], "; nobody can drain or undrain there before regionctl undo drain --region us-east gives it what it had"
	drain("iad1", 0)
	lost := func(saying string, lose func(), want []region.Drains) {
		t.Helper()
		lose()
		for _, args := range [][]string{{"drain", "ams1", "--message", "disk", "--yes", "--force", "--wait", "0"}, {"undrain", "ams1", "--yes"}} {
			text := f.refused(t, term.StatusPartial, args...)
			require.Contains(t, text, saying)
			require.Contains(t, text, way)
			_, _, err := region.PublishedDrains(t.Context(), f.open["us-east"])
			require.ErrorContains(t, err, saying)
		}
		f.good(t, "undo", "drain", "--region", "us-east", "--yes")
		require.Equal(t, want, f.drains(t, "us-east"))
		drain("ams1", 0)
		require.Len(t, f.drains(t, "us-east")[0].Begun, 2)
		f.good(t, "undrain", "ams1", "--yes")
		f.good(t, "audit", "verify")
	}
	lost(key+": the pointer is gone, although changes were recorded", func() { us.Remove(t, key) }, f.drains(t, "us-east"))
	lost(key+": is not a JSON object with version and sha256", func() { us.Set(t, key, []byte("{")) }, f.drains(t, "us-east"))
	one := f.drains(t, "us-east")
	f.good(t, "undrain", "iad1", "--yes")
	lost("the version is missing; apply the document again", func() {
		p, _, err := f.open["us-east"].Documents(region.DrainsKind).Current(t.Context())
		require.NoError(t, err)
		us.Remove(t, "weir/drain/versions/"+p.Version)
	}, one)
	f.consuls["eu-west"].Remove(t, key)
	us.Remove(t, key)
	require.Contains(t, f.refused(t, term.StatusFailed, "drain", "ams1", "--message", "x", "--yes", "--force", "--wait", "0"), "nothing was changed:\neu-west: ")
}

// A list of clients whose pointer is gone is not empty: an edit would forget the other networks.
func TestClientsThatAreLost(t *testing.T) {
	t.Parallel()
	f := startFleet(t, "eu-west", "us-east")
	block := func(network string) []string {
		return []string{"clients", "block", network, "--message", "abuse", "--by", "ana", "--wait", "0"}
	}
	for _, n := range []string{"192.0.2.1", "198.51.100.1", "203.0.113.1"} {
		f.good(t, block(n)...)
	}
	list := func() (list []string) {
		l, err := clientlist.Read(t.Context(), f.open["us-east"])
		require.NoError(t, err)
		for _, e := range l.Entries() {
			list = append(list, e.Network.String())
		}
		return list
	}
	had := list()
	require.Len(t, had, 3)
	us, key := f.consuls["us-east"], "weir/clients/current"
	for saying, lose := range map[string]func(){
		key + ": the pointer is gone, although changes were recorded; regionctl undo clients --region us-east gives the region what it had": func() { us.Remove(t, key) },
		key + ": is not a JSON object": func() { us.Set(t, key, []byte("{")) },
	} {
		lose()
		for _, args := range [][]string{block("192.0.2.2"), {"clients", "import", write(t, "drop.txt", "192.0.2.3"), "--replace", "--message", "abuse", "--wait", "0"}} {
			require.Contains(t, f.refused(t, term.StatusPartial, args...), saying)
		}
		require.Contains(t, f.refused(t, term.StatusPartial, "clients", "list"), saying)
		f.good(t, "undo", "clients", "--region", "us-east", "--yes", "--wait", "0")
		require.Equal(t, had, list())
	}
	us.Remove(t, key)
	require.Contains(t, f.refused(t, term.StatusPartial, "undo", "clients", "--yes", "--wait", "0"), "the last change was not undone")
	require.Equal(t, had, list())
	f.good(t, "audit", "verify")
}

// Drains keep as many versions as other documents, and what undo needs.
func TestDrainsArePruned(t *testing.T) {
	t.Parallel()
	f := startFleet(t, "eu-west", "us-east")
	text, err := os.ReadFile(f.file)
	require.NoError(t, err)
	f.file = write(t, "fleet.yaml", "keep_versions: 10\n"+string(text))
	f.good(t, "topology", "apply", write(t, "topology.yaml", topologyOf(1)), "--yes")
	for range 7 {
		f.good(t, "drain", "ams1", "--message", "kernel", "--yes", "--force", "--wait", "0")
		f.good(t, "undrain", "ams1", "--yes")
	}
	for _, name := range f.names {
		stored, err := f.open[name].Documents(region.DrainsKind).Versions(t.Context(), "")
		require.NoError(t, err)
		require.Len(t, stored, 10)
	}
	f.good(t, "undo", "drain", "--yes", "--force")
	require.Len(t, f.drains(t, "eu-west")[0].Begun, 1)
}

// An apply records the end of a canary that has expired: when it ended.
func TestExpiredCanaryEndedThen(t *testing.T) {
	t.Parallel()
	f := startFleet(t, "eu-west")
	f.publish(t, rulesOf(1), "eve", "eu-west")
	ended := time.Now().Add(-time.Hour).UTC().Round(0)
	p := consul.NewPointer([]byte(rulesOf(2)), "ana", ended.Add(-time.Hour))
	p.ExpiresAt = &ended
	f.try(t, "eu-west", "ams1", p)
	f.good(t, "rules", "apply", write(t, "two.yaml", rulesOf(2)), "--yes", "--wait", "0", "--by", "bob")
	changes, _, err := f.rules("eu-west").History(t.Context(), 0)
	require.NoError(t, err)
	i := slices.IndexFunc(changes, func(c consul.Change) bool { return c.Canary == "ams1" })
	require.GreaterOrEqual(t, i, 0)
	require.True(t, changes[i].AppliedAt.Equal(ended), "%s", changes[i].AppliedAt)
	require.Contains(t, changes[i].Message, "begun by ana at ")
	require.Contains(t, changes[i].Message, "ended: it expired, as bob found later")
	f.good(t, "audit", "verify")
}

// What drain refuses, the undo of an undrain refuses, too.
func TestUndoKeepsTheLastPoP(t *testing.T) {
	t.Parallel()
	f := startFleet(t, "eu-west", "us-east")
	f.good(t, "topology", "apply", write(t, "topology.yaml", topologyOf(1)), "--yes")
	f.edge(t, "eu-west", "ams1", "ams1-1")
	iad1 := f.edge(t, "us-east", "iad1", "iad1-1")
	f.good(t, "drain", "ams1", "--message", "kernel", "--yes", "--wait", "0")
	f.good(t, "undrain", "ams1", "--yes")
	f.deregister(t, iad1)
	const why = "without ams1 no healthy PoP would be left that is not drained, and DNS would keep answering with it; put another back with regionctl undrain"
	require.Contains(t, f.refused(t, term.StatusFailed, "drain", "ams1", "--message", "x", "--yes", "--wait", "0"), "nothing was changed: "+why)
	require.Contains(t, f.refused(t, term.StatusFailed, "undo", "drain", "--yes"), "nothing was changed: "+why+"\n--force changes it anyway")
	for _, d := range f.drains(t, f.names...) {
		require.Empty(t, d.Begun)
	}
	f.good(t, "undo", "drain", "--yes", "--force")
	changes, _, err := f.open["us-east"].Documents(region.DrainsKind).History(t.Context(), 1)
	require.NoError(t, err)
	require.Equal(t, why, changes[0].Forced)
	f.good(t, "undo", "drain", "--yes")
}

// Changes of two people are two, although their messages are equal; the repetition of one that a
// region lacked is the same.
func TestUndoTellsChangesApart(t *testing.T) {
	t.Parallel()
	f := startFleet(t, "eu-west", "us-east")
	list := func(args ...string) { f.good(t, append([]string{"clients"}, append(args, "--wait", "0")...)...) }
	count := func() (n []int) {
		for _, name := range f.names {
			l, err := clientlist.Read(t.Context(), f.open[name])
			require.NoError(t, err)
			n = append(n, len(l.Entries()))
		}
		return n
	}
	list("import", write(t, "a.txt", "192.0.2.1"), "--message", "abuse", "--by", "ana", "--region", "eu-west")
	list("import", write(t, "b.txt", "192.0.2.2"), "--message", "abuse", "--by", "bob", "--region", "us-east")
	for _, name := range f.names {
		h, _, err := f.open[name].Documents(clientlist.Kind).History(t.Context(), 1)
		require.NoError(t, err)
		require.Regexp(t, ": abuse$", h[0].Message)
	}
	f.good(t, "undo", "clients", "--yes", "--wait", "0")
	require.Equal(t, []int{1, 0}, count())

	block := []string{"block", "192.0.2.3", "--message", "z", "--by", "ana"}
	list(append(block, "--region", "eu-west")...)
	list(block...)
	require.Equal(t, []int{2, 1}, count())
	f.good(t, "undo", "clients", "--yes", "--wait", "0")
	require.Equal(t, []int{1, 0}, count())
}
