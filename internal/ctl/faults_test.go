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

	"github.com/weir-edge/weir/internal/ctl/fleet"
	"github.com/weir-edge/weir/internal/ctl/rollout"
	"github.com/weir-edge/weir/internal/ctl/term"
	"github.com/weir-edge/weir/pkg/region/consul"
)

// orphan makes a site follow a canary that nobody manages.
func (f *testFleet) orphan(t testing.TB, name, pop, document, by string) consul.Pointer {
	t.Helper()
	p := consul.NewPointer([]byte(document), by, time.Now())
	ends := time.Now().Add(time.Hour)
	p.ExpiresAt = &ends
	_, err := f.rules(name).Put(t.Context(), []byte(document))
	require.NoError(t, err)
	f.try(t, name, pop, p)
	return p
}

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
	changes, _, err := f.rules("eu-west").History(t.Context(), 0)
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
		switch changes := writes(r, "/rules/current"); {
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
	changes, _, err := f.rules("eu-west").History(t.Context(), 0)
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
