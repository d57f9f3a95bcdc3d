package ctl

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/clientlist"
	"github.com/weir-edge/weir/internal/ctl/term"
	"github.com/weir-edge/weir/pkg/region"
	"github.com/weir-edge/weir/pkg/region/consul"
)

// What someone decides about a network while a command removes it stays.
func TestRemovalsKeepLaterDecisions(t *testing.T) {
	t.Parallel()
	f := startFleet(t, "eu-west")
	network := netip.MustParsePrefix("192.0.2.1/32")
	decide := func(action clientlist.Action, by string) error {
		now := time.Now().UTC()
		d := &clientlist.Decision{Action: action, By: by, Reason: "abuse", Since: now}
		e := clientlist.Edits{By: by, Message: "test", Now: now, List: []clientlist.Edit{{Network: network, Decision: d}}}
		_, err := e.Apply(t.Context(), f.open["eu-west"])
		return err
	}
	for by, args := range map[string][]string{
		clientlist.ByList("drop"): {"clients", "unblock", "--list", "drop", "--wait", "0"},
		"ana":                     {"clients", "import", write(t, "list.txt", "198.51.100.1"), "--message", "abuse", "--replace", "--overwrite", "--wait", "0"},
	} {
		require.NoError(t, decide(clientlist.Block, by))
		var err error
		bob := sync.OnceFunc(func() { err = decide(clientlist.Allow, "bob") })
		f.faulty(t, "eu-west", atWrite(bob)).good(t, args...)
		require.NoError(t, err)
		l, err := clientlist.Read(t.Context(), f.open["eu-west"])
		require.NoError(t, err)
		require.True(t, slices.ContainsFunc(l.Entries(), func(e *clientlist.Entry) bool { return e.Network == network && e.By == "bob" }), "%s", args)
	}
}

// Two changes of a region at once, both of them its first.
func TestFirstChangesMeet(t *testing.T) {
	t.Parallel()
	f := startFleet(t, "eu-west", "us-east")
	f.good(t, "topology", "apply", write(t, "topology.yaml", topologyOf(1)), "--yes")
	for kind, args := range map[string][2][]string{
		"drain":   {{"drain", "ams1", "--message", "x", "--yes", "--force", "--wait", "0"}, {"drain", "iad1", "--message", "x", "--yes", "--force", "--wait", "0"}},
		"clients": {{"clients", "block", "192.0.2.1", "--message", "x", "--wait", "0"}, {"clients", "block", "192.0.2.2", "--message", "x", "--wait", "0"}},
	} {
		var r result
		other, read := sync.OnceFunc(func() { r = f.run(t, args[0]...) }), make(chan struct{})
		answered := sync.OnceFunc(func() { close(read) })
		through := f.faulty(t, "eu-west", func(w http.ResponseWriter, r *http.Request) bool {
			switch {
			case r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, kind+"/current"):
				forward(w, r, f.consuls["eu-west"].Addr())
				answered()
				return true
			case strings.Contains(r.URL.Path, kind+"/history"):
				<-read
				other()
			}
			return false
		})
		through.good(t, args[1]...)
		require.Zero(t, r.status, r.errOut)
	}
	require.Len(t, f.drains(t, "eu-west")[0].Begun, 2)
	l, err := clientlist.Read(t.Context(), f.open["eu-west"])
	require.NoError(t, err)
	require.Len(t, l.Entries(), 2)
}

// A reader of drains whose lost pointer is put back in the meantime does not find none.
func TestDrainsPutBackWhileRead(t *testing.T) {
	t.Parallel()
	f := startFleet(t, "eu-west", "us-east")
	f.good(t, "topology", "apply", write(t, "topology.yaml", topologyOf(1)), "--yes")
	f.good(t, "drain", "ams1", "--message", "x", "--yes", "--force", "--wait", "0")
	server, c := f.consuls["eu-west"], f.open["eu-west"]
	key := c.Key("drain", "current")
	pointer := server.Stored(t, key)
	server.Remove(t, key)
	read := make(chan struct{})
	answered := sync.OnceFunc(func() { close(read) })
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.URL.Path, "drain/history") {
			<-read
			server.Set(t, key, pointer)
		}
		forward(w, r, server.Addr())
		if strings.HasSuffix(r.URL.Path, "drain/current") {
			answered()
		}
	}))
	t.Cleanup(front.Close)
	through, err := consul.Open(consul.Config{Addr: front.Listener.Addr().String(), Prefix: c.Prefix()})
	require.NoError(t, err)
	t.Cleanup(through.Close)
	d, _, err := region.PublishedDrains(t.Context(), through)
	require.NoError(t, err)
	require.Contains(t, d.Begun, "ams1")
}

// Nothing was lost where the first change comes between the looks at the pointer and at the history.
func TestUndoOfAFirstChange(t *testing.T) {
	t.Parallel()
	f := startFleet(t, "eu-west", "us-east")
	f.good(t, "topology", "apply", write(t, "topology.yaml", topologyOf(1)), "--yes")
	var err error
	bob := sync.OnceFunc(func() {
		now := time.Now().UTC().Round(0)
		change := consul.Change{Pointer: consul.Pointer{AppliedBy: "bob", AppliedAt: now}, Message: "drain ams1: x"}
		_, err = region.ChangeDrains(t.Context(), f.open["eu-west"], change, func(d *region.Drains) *region.Drains {
			return d.With("ams1", &region.Drain{Who: "bob", Why: "x", Since: now, At: now}, time.Time{})
		})
	})
	through := f.faulty(t, "eu-west", func(_ http.ResponseWriter, r *http.Request) bool {
		if strings.Contains(r.URL.Path, "drain/history") {
			bob()
		}
		return false
	})
	r := through.good(t, "undo", "drain", "--yes", "--region", "eu-west")
	require.NoError(t, err)
	require.NotContains(t, r.errOut, "lost")
	require.Contains(t, r.errOut, "is the last change: drain ams1: x")
	require.Empty(t, f.drains(t, "eu-west")[0].Begun)
}

// A region that falls silent during a drain has changed nothing: its PoP still counts.
func TestDrainWhereARegionFallsSilent(t *testing.T) {
	t.Parallel()
	f := startFleet(t, "eu-west", "us-east")
	f.good(t, "topology", "apply", write(t, "topology.yaml", topologyOf(1)), "--yes")
	f.edge(t, "eu-west", "ams1", "ams1-1")
	f.edge(t, "us-east", "iad1", "iad1-1")
	var silent atomic.Bool
	through := f.faulty(t, "us-east", func(w http.ResponseWriter, r *http.Request) bool {
		if writes(r, "/current") {
			silent.Store(true)
		}
		if silent.Load() {
			w.WriteHeader(http.StatusInternalServerError)
		}
		return silent.Load()
	})
	why := through.refused(t, term.StatusPartial, "drain", "ams1", "--message", "x", "--yes", "--wait", "0")
	require.Contains(t, why, "eu-west has it, which is enough")
	require.NotContains(t, why, "no healthy PoP")
}

// Changes that come while the history is read are not taken for pointers that were put back.
func TestAuditWhileOthersChange(t *testing.T) {
	t.Parallel()
	f := startFleet(t, "eu-west")
	f.publish(t, rulesOf(1), "eve", "eu-west")
	var changes atomic.Int32
	through := f.faulty(t, "eu-west", func(_ http.ResponseWriter, r *http.Request) bool {
		if strings.HasSuffix(r.URL.Path, "rules/head") {
			f.publish(t, rulesOf(1+int(changes.Add(1))), "eve", "eu-west")
		}
		return false
	})
	through.good(t, "audit", "verify")
	require.Positive(t, changes.Load())
}
