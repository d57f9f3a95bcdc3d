package ctl

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"
	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/ctl/change"
	"github.com/weir-edge/weir/internal/ctl/command"
	"github.com/weir-edge/weir/internal/ctl/fleet"
	"github.com/weir-edge/weir/internal/ctl/rollout"
	"github.com/weir-edge/weir/internal/ctl/term"
	"github.com/weir-edge/weir/pkg/region/consul"
)

// fault breaks the path between regionctl and a Consul or an edge. It sees each request first,
// may wait or change state, and reports whether it has answered.
type fault func(w http.ResponseWriter, r *http.Request) bool

// atWrite runs do before every write of a pointer, when some regions have a
// change and others do not.
func atWrite(do func()) fault {
	return func(_ http.ResponseWriter, r *http.Request) bool {
		if writes(r, "/current") {
			do()
		}
		return false
	}
}

// faulty returns the fleet with a fault in front of one region's Consul. The fleet itself stays
// reachable for concurrent changes.
func (f *testFleet) faulty(t testing.TB, name string, inject fault) *testFleet {
	t.Helper()
	addr := f.consuls[name].Addr()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !inject(w, r) {
			forward(w, r, addr)
		}
	}))
	t.Cleanup(server.Close)
	text, err := os.ReadFile(f.file)
	require.NoError(t, err)
	through := *f
	through.file = write(t, "through.yaml", strings.Replace(string(text), addr, server.Listener.Addr().String(), 1))
	return &through
}

// writes reports whether a request to Consul writes or deletes a key with this suffix. Consul reads
// in transactions, too.
func writes(r *http.Request, ends string) bool {
	if r.Method != http.MethodPut {
		return false
	}
	if r.URL.Path != "/v1/txn" {
		return strings.HasSuffix(r.URL.Path, ends)
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return false
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	var ops api.TxnOps
	if json.Unmarshal(body, &ops) != nil {
		return false
	}
	return slices.ContainsFunc(ops, func(op *api.TxnOp) bool {
		return (op.KV.Verb == api.KVCAS || op.KV.Verb == api.KVDelete) && strings.HasSuffix(op.KV.Key, ends)
	})
}

// outrun answers a write of a pointer as if another change had been recorded first: it is repeated,
// up to 16 times.
func outrun(w http.ResponseWriter, r *http.Request) {
	var ops api.TxnOps
	_ = json.NewDecoder(r.Body).Decode(&ops) // writes has decoded it
	head := slices.IndexFunc(ops, func(op *api.TxnOp) bool { return strings.HasSuffix(op.KV.Key, "/head") })
	w.WriteHeader(http.StatusConflict)
	_ = json.NewEncoder(w).Encode(api.TxnResponse{Errors: api.TxnErrors{{OpIndex: head, What: "has changed"}}})
}

// nearby takes no virtual time. A kept connection would stop the clock.
var nearby = &http.Transport{DisableKeepAlives: true}

// forward sends the request to the real Consul.
func forward(w http.ResponseWriter, r *http.Request, addr string) {
	out := r.Clone(r.Context())
	out.URL.Scheme, out.URL.Host, out.RequestURI = "http", addr, ""
	answer, err := nearby.RoundTrip(out)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	defer answer.Body.Close()
	for name, values := range answer.Header {
		w.Header()[name] = values
	}
	w.WriteHeader(answer.StatusCode)
	_, _ = io.Copy(w, answer.Body)
}

// orphan makes a site follow a canary without a manager.
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

// Consul made the change, but its answer and those to later requests were lost.
func testLostAnswer(t *testing.T, f *testFleet) {
	var losing, gone atomic.Bool
	losing.Store(true)
	f = f.faulty(t, "eu-west", func(_ http.ResponseWriter, r *http.Request) bool {
		switch changes := writes(r, "/rules/current"); {
		case losing.Load() && changes:
			forward(httptest.NewRecorder(), r, f.consuls["eu-west"].Addr())
			gone.Store(true)
			panic(http.ErrAbortHandler)
		case gone.Load():
			panic(http.ErrAbortHandler)
		}
		return false
	})
	file := write(t, "rules.yaml", rulesOf(1))
	r := f.run(t, "rules", "apply", file, "--yes", "--by", "ana", "-m", "why", "-o", "json", "--region", "eu-west")
	require.Equal(t, term.StatusFailed, r.status)
	require.NotContains(t, r.errOut, "nothing was changed")
	require.Contains(t, r.errOut, "may have taken effect in eu-west:")
	require.Equal(t, rollout.Unknown, parse[change.Report](t, r.out).Regions[0].Result)
	losing.Store(false)
	gone.Store(false)
	f.good(t, "rules", "apply", file, "--yes", "--by", "ana", "-m", "why", "--region", "eu-west")
	changes, _, err := f.rules("eu-west").History(t.Context(), 0)
	require.NoError(t, err)
	require.Len(t, changes, 1)
	require.Equal(t, "why", changes[0].Message)
}

// Hanging nodes do not delay reads of the others.
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
			Meta: map[string]string{"node": id, "region": "us-east", "prefix": f.prefix, "pop": "iad1", consul.MetaSchema: "1", "admin": server.Listener.Addr().String()}}))
		t.Cleanup(func() { _ = agent.ServiceDeregister(id) })
	}
	var out, errOut buffer
	p := f.program(strings.NewReader(""), &out, &errOut)
	soak := os.Getenv("WEIR_SOAK") != "" // otherwise other work may slow the machine
	if soak {
		p.LookTime = 2 * time.Second
	}
	began := time.Now()
	_ = run(t.Context(), p, s.args("--bake", "500ms", "--yes", "--wait", "5s", "--min-requests", "0", "--fleet", f.file))
	require.Contains(t, errOut.String(), "ams1 is within the bounds after 500ms")
	if soak {
		require.Less(t, time.Since(began), 3*command.DefaultTimeout)
	}
}
