package ctl

import (
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"
	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/adminapi"
	"github.com/weir-edge/weir/internal/ctl/fleet"
	"github.com/weir-edge/weir/internal/ctl/rollout"
	"github.com/weir-edge/weir/internal/ctl/term"
	"github.com/weir-edge/weir/pkg/region/consul"
)

// A node's admin address leads to another node.
func testWrongNode(t *testing.T, f *testFleet) {
	p := f.publish(t, rulesOf(1), "ana", f.names...)
	f.edge(t, "us-east", "iad1", "iad1-1", func(s *stub) { s.version = p.Version })
	e := f.edge(t, "eu-west", "ams1", "ams1-1", func(s *stub) {
		s.claims, s.stays, s.version = "fra1-1", true, "0123456789ab"
		s.explain = func(url.Values) adminapi.Explanation { return adminapi.Explanation{} }
	})
	e.mu.Lock()
	e.version = p.Version // what the other one runs
	e.mu.Unlock()
	const why = "answered by node fra1-1, not ams1-1; its admin address is not reachable from here"
	r := f.run(t, "rules", "status", "-o", "json")
	require.Equal(t, term.StatusPartial, r.status)
	n := parse[convergence](t, r.out).Regions[0].Nodes[0]
	require.Equal(t, "catalogue 0123456789ab", n.Seen+" "+n.Version)
	require.Contains(t, n.AdminError, why)
	require.Equal(t, term.StatusPartial, f.run(t, "rules", "apply", write(t, "rules.yaml", rulesOf(1)), "--yes", "--wait", "500ms").status)
	for _, args := range [][]string{
		{"limits", "explain", "--client", "::1"}, {"limits", "inspect", "::1"}, {"limits", "reset", "--rule", "per-client", "--client", "::1", "--yes"},
		{"rules", "apply", write(t, "rules.yaml", rulesOf(2)), "--yes", "--canary", "ams1", "--wait", "500ms"},
	} {
		r = f.run(t, append(args, "--region", "eu-west")...)
		require.Equal(t, term.StatusFailed, r.status, "%v", args)
		if args[0] == "limits" {
			require.Contains(t, r.errOut, why)
		}
	}
}

// orphan makes a site follow a canary that nobody manages.
func (f *testFleet) orphan(t *testing.T, name, pop, document, by string) consul.Pointer {
	t.Helper()
	p := consul.NewPointer([]byte(document), by, time.Now())
	ends := time.Now().Add(time.Hour)
	p.ExpiresAt = &ends
	_, err := f.rules(name).Put(t.Context(), []byte(document))
	require.NoError(t, err)
	f.try(t, name, pop, p)
	return p
}

func testOrphan(t *testing.T, f *testFleet) {
	s := newSite(t, f, load(50, 1, 0))
	lone := f.orphan(t, "eu-west", "ams1", rulesOf(9), "bob")
	require.Eventually(t, func() bool { return s.canary.runs() == lone.Version }, patience, tick)
	old := write(t, "old.yaml", rulesOf(1))
	r := f.run(t, "rules", "apply", old)
	require.Equal(t, term.StatusUsage, r.status, "ending a trial needs confirmation")
	r = f.good(t, "rules", "apply", old, "--yes")
	require.Contains(t, r.errOut, "eu-west: canary of bob on ams1 ended\n")
	require.Contains(t, r.out, "eu-west  already there  "+s.old.Version+"  2 of 2")
	s.unchanged(t)

	// The same document is taken over, even if somebody else tried it.
	f.orphan(t, "eu-west", "ams1", rulesOf(2), "bob")
	s.good(t, s.args("--bake", "500ms", "--yes")...)
	s.gone(t)
	f.orphan(t, "us-east", "iad1", rulesOf(9), "bob")
	r = f.good(t, "rules", "rollback", "--yes")
	require.Contains(t, r.errOut, "us-east: canary of bob on iad1 ended\n")
	require.Equal(t, s.old.Version, s.edges[2].runs())
}

// A plain apply ends a live trial, which reports it.
func testTrialEnded(t *testing.T, f *testFleet) {
	s := newSite(t, f, load(10, 0, 0))
	c := s.converse(t, s.args("--bake", "10m", "--yes")...)
	c.sees(t, "ams1: ")
	f.good(t, "rules", "apply", write(t, "other.yaml", rulesOf(7)), "--yes", "--by", "bob")
	r := c.end(t)
	require.Equal(t, term.StatusConflict, r.status)
	require.Contains(t, r.errOut, "bob applied")
	s.gone(t)
}

// One datacenter also holds the nodes of others.
func TestStrangers(t *testing.T) {
	t.Parallel()
	f := startFleet(t, "eu-west", "us-east")
	p := f.publish(t, rulesOf(1), "ana", f.names...)
	follows := f.edge(t, "eu-west", "ams1", "ams1-1")
	f.edge(t, "us-east", "iad1", "iad1-1", func(s *stub) { s.version = p.Version })
	require.Eventually(t, func() bool { return follows.runs() == p.Version }, patience, tick)
	for id, meta := range map[string]map[string]string{
		"x1": {"region": "mars", "prefix": f.prefix}, "x2": {"region": "mars", "prefix": "other"}, "x3": {"region": "eu-west", "prefix": "other"},
	} {
		agent := f.consuls["eu-west"].Client().Agent()
		meta["node"] = id
		require.NoError(t, agent.ServiceRegister(&api.AgentServiceRegistration{ID: id, Name: consul.Service, Meta: meta}))
		t.Cleanup(func() { _ = agent.ServiceDeregister(id) })
	}
	require.Eventually(t, func() bool {
		nodes, err := f.open["eu-west"].Nodes(t.Context())
		return err == nil && len(nodes) == 4
	}, patience, tick)
	r := f.good(t, "rules", "status")
	require.NotContains(t, r.out, "x1")
	require.Equal(t, "warning: eu-west: 1 node says it is in region mars; the fleet file calls this one eu-west\n"+
		"warning: eu-west: 1 node says it is configured with consul.prefix other; the fleet file says "+f.prefix+"\n", r.errOut)
}

// Keys with invalid data, or under names that would control a terminal, block nobody.
func testNonsense(t *testing.T, f *testFleet) {
	p := f.publish(t, rulesOf(1), "ana", f.names...)
	for _, name := range f.names {
		f.edge(t, name, "pop1", name+"-1", func(s *stub) { s.version = p.Version })
	}
	var ops api.TxnOps
	for _, key := range []string{"canary/pop1\x1b[2J", "canary/pop\u009b2J", "history/\x1b]0;x\x07", "canary/pop2"} {
		ops = append(ops, &api.TxnOp{KV: &api.KVTxnOp{Verb: api.KVSet, Key: f.prefix + "/rules/" + key, Value: []byte("{\x1b[31m")}})
	}
	done, _, _, err := f.consuls["eu-west"].Client().Txn().Txn(ops, nil)
	require.NoError(t, err)
	require.True(t, done)
	for _, args := range [][]string{{"status"}, {"status", "-o", "json"}, {"history"}, {"apply", write(t, "r.yaml", rulesOf(2)), "--yes"}, {"rollback", "--yes"}} {
		r := f.good(t, append([]string{"rules"}, args...)...)
		require.Contains(t, r.out+r.errOut, "correct or delete the key", "%v", args)
		require.NotRegexp(t, "[\x00-\x08\x0b-\x1f\x7f\u0080-\u009f]", r.out+r.errOut, "%v", args)
	}
}

// Piped, a document comes out unchanged; a terminal obeys none of it.
func testShowOnTerminal(t *testing.T, f *testFleet) {
	const text = "# \x1b[2J\x7f\n" // not a rule document, and stored anyway
	f.publish(t, text, "ana", f.names...)
	require.Equal(t, text, f.good(t, "rules", "show").out)
	var out, errOut buffer
	p := f.program(strings.NewReader(""), &out, &errOut)
	p.OutLive = true
	require.NoError(t, p.run(t.Context(), []string{"rules", "show", "--fleet", f.file}))
	require.Equal(t, "# ?[2J?\n", out.String())
}

// A stored version is missing from the history.
func testForgotten(t *testing.T, f *testFleet) {
	first, second := f.publish(t, rulesOf(1), "ana", f.names...), f.publish(t, rulesOf(2), "ana", f.names...)
	for _, name := range f.names {
		_, err := f.consuls[name].Client().KV().DeleteTree(f.prefix+"/rules/history/", nil)
		require.NoError(t, err)
	}
	require.Equal(t, rulesOf(1), f.good(t, "rules", "show", first.Version[:6]).out)
	require.Equal(t, term.StatusUsage, f.run(t, "rules", "show", "ffffffffffff").status)

	// Applying the active version again records who did it.
	f.good(t, "rules", "apply", write(t, "r.yaml", rulesOf(2)), "--yes", "--by", "bob", "-m", "late")
	changes, _, err := f.rules("eu-west").History(t.Context())
	require.NoError(t, err)
	require.Equal(t, []consul.Change{{Pointer: second}}, changes)
	f.good(t, "rules", "rollback", "--yes", "--to", first.Version)
	require.Equal(t, first.Version, f.current(t, "us-east"))

	_, err = f.consuls["eu-west"].Client().KV().DeleteTree(f.prefix+"/rules/history/", nil)
	require.NoError(t, err)
	require.NoError(t, f.rules("eu-west").Record(t.Context(), consul.Change{Pointer: second}))
	f.good(t, "rules", "rollback", "--yes", "--region", "eu-west")
	require.Equal(t, second.Version, f.current(t, "eu-west"), "the newest entry was missing")
}

// Consul made the change, but its answer was lost.
func testLostAnswer(t *testing.T, f *testFleet) {
	target, err := url.Parse("http://" + f.consuls["eu-west"].Addr())
	require.NoError(t, err)
	forward := httputil.NewSingleHostReverseProxy(target)
	var losing atomic.Bool
	losing.Store(true)
	var gone atomic.Bool
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch changes := r.Method == http.MethodPut && strings.HasSuffix(r.URL.Path, "/rules/current"); {
		case losing.Load() && changes:
			forward.ServeHTTP(httptest.NewRecorder(), r)
			gone.Store(true)
			panic(http.ErrAbortHandler)
		case gone.Load():
			panic(http.ErrAbortHandler)
		}
		forward.ServeHTTP(w, r)
	}))
	defer server.Close()
	host, port, err := net.SplitHostPort(server.Listener.Addr().String())
	require.NoError(t, err)
	f.file = write(t, "fleet.yaml", "regions:\n  - {name: eu-west, consul: {addr: \""+net.JoinHostPort(host, port)+"\", prefix: "+f.prefix+"}}\n")
	file := write(t, "rules.yaml", rulesOf(1))
	r := f.run(t, "rules", "apply", file, "--yes", "--by", "ana", "-m", "why", "-o", "json")
	require.Equal(t, term.StatusFailed, r.status)
	require.NotContains(t, r.errOut, "nothing was changed")
	require.Contains(t, r.errOut, "may have taken effect in eu-west; run this again:")
	require.Equal(t, rollout.Unknown, parse[changeReport](t, r.out).Regions[0].Result)
	losing.Store(false)
	gone.Store(false)
	f.good(t, "rules", "apply", file, "--yes", "--by", "ana", "-m", "why")
	changes, _, err := f.rules("eu-west").History(t.Context())
	require.NoError(t, err)
	require.Len(t, changes, 1)
	require.Equal(t, "why", changes[0].Message)
}

// Edges that lost their place in the catalog are waited for.
func testNoEdges(t *testing.T, f *testFleet) {
	r := f.good(t, "rules", "apply", write(t, "r.yaml", rulesOf(1)), "--yes", "-o", "json", "--region", "eu-west")
	require.False(t, parse[changeReport](t, r.out).Converged)
	require.Contains(t, r.errOut, "no edge is registered there")
	var out, errOut buffer
	p := f.program(strings.NewReader(""), &out, &errOut)
	p.registering = patience
	ended := make(chan error, 1)
	go func() {
		ended <- p.run(t.Context(), []string{"rules", "apply", "--yes", "-o", "json", "--region", "eu-west", "--fleet", f.file, write(t, "r.yaml", rulesOf(1))})
	}()
	require.Eventually(t, func() bool { return strings.Contains(errOut.String(), "no edge is registered") }, patience, tick)
	f.edge(t, "eu-west", "ams1", "ams1-1")
	require.NoError(t, <-ended)
	require.True(t, parse[changeReport](t, out.String()).Converged)
}

// Hanging nodes do not delay reading the others.
func testLookIsBounded(t *testing.T, f *testFleet) {
	s := newSite(t, f, load(50, 1, 0))
	hang := make(chan struct{})
	defer close(hang)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-hang:
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(server.Close)
	agent := f.consuls["us-east"].Client().Agent()
	for i := range 3 * fleet.AtOnce {
		id := "hung-" + string(rune('a'+i%26)) + string(rune('a'+i/26))
		require.NoError(t, agent.ServiceRegister(&api.AgentServiceRegistration{ID: id, Name: consul.Service,
			Meta: map[string]string{"node": id, "region": "us-east", "prefix": f.prefix, "pop": "iad1", "admin": server.Listener.Addr().String()}}))
		t.Cleanup(func() { _ = agent.ServiceDeregister(id) })
	}
	var out, errOut buffer
	p := f.program(strings.NewReader(""), &out, &errOut)
	p.look = 500 * time.Millisecond
	began := time.Now()
	_ = p.run(t.Context(), s.args("--bake", "500ms", "--yes", "--wait", "1s", "--min-requests", "0", "--fleet", f.file))
	require.Contains(t, errOut.String(), "ams1 is within the bounds after 500ms")
	require.Less(t, time.Since(began), 3*defaultTimeout)
}
