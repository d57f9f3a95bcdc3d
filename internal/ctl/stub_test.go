package ctl

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"
	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/adminapi"
	"github.com/weir-edge/weir/internal/policy"
	"github.com/weir-edge/weir/pkg/limiter/rules"
	"github.com/weir-edge/weir/pkg/region/consul"
)

// stub is the admin listener of an edge that follows Consul, or behaves as configured.
type stub struct {
	region, id, pop string
	server          *httptest.Server

	mu      sync.Mutex
	version string
	canary  bool
	stays   bool   // keeps its version, whatever is published
	refuses string // the version that it refuses
	reasons []string
	ahead   time.Duration // ahead of this machine's clock
	reads   int           // the schema that it registers; 0: none
	signed  string        // the keys that it requires
	meta    map[string]string
	silent  bool     // its admin listener answers 500
	claims  string   // the node whose answers its admin listener gives, if not its own
	asked   []string // questions to explain
	current *consul.Pointer
	onTrial *consul.Pointer
	shedder stubShedder
	policy  stubPolicy
	clients stubClients

	requests map[string]float64 // by code class
	limited  float64
	slow     float64 // requests that took nearly a second; the others were fast
	// traffic is called before each scrape with the running version.
	traffic     func(s *stub, version string)
	stalled     time.Time // the end of its stall
	explanation adminapi.Explanation
	keeps       bool // refuses resets
	resetting   func()
	experiment  adminapi.Experiment
	global      *adminapi.Global // nil: it answers 404
	top         adminapi.Top
	recent      []string
	recentSince time.Time // zero: it keeps no requests
}

// edge registers a stub that follows Consul until the test ends.
func (f *testFleet) edge(t testing.TB, name, pop, id string, setup ...func(*stub)) *stub {
	t.Helper()
	s := &stub{region: name, id: id, pop: pop, reads: rules.Schema, requests: map[string]float64{"2xx": 1000, "5xx": 10}}
	for _, change := range setup {
		change(s)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+adminapi.PathReady, func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET "+adminapi.PathRules, s.serve(s.rules))
	mux.HandleFunc("GET "+adminapi.PathShedder, s.serve(s.shedding))
	mux.HandleFunc("GET "+adminapi.PathPolicy, s.serve(s.policies))
	mux.HandleFunc("GET "+adminapi.PathExplain, s.serve(s.explain))
	mux.HandleFunc("GET "+adminapi.PathExperiment, s.serve(s.tried))
	mux.HandleFunc("DELETE "+adminapi.PathLimits, s.serve(s.reset))
	mux.HandleFunc("GET "+adminapi.PathMetrics, s.serve(s.metrics))
	mux.HandleFunc("GET "+adminapi.PathRecent, s.serve(s.lately))
	mux.HandleFunc("GET "+adminapi.PathTop, s.serve(func(w http.ResponseWriter, _ *http.Request) { reply(w, s.top) }))
	mux.HandleFunc("GET "+adminapi.PathGlobal, s.serve(func(w http.ResponseWriter, r *http.Request) {
		if s.global == nil {
			http.NotFound(w, r)
			return
		}
		reply(w, s.global)
	}))
	s.server = httptest.NewServer(mux)

	ctx, cancel := context.WithCancel(t.Context())
	var watches sync.WaitGroup
	docs := f.rules(name)
	watches.Go(func() {
		f.open[name].Watch(ctx, docs.CurrentKey(), nil, func(e *consul.Entry) { s.follow(&s.current, e) })
	})
	watches.Go(func() {
		f.open[name].Watch(ctx, docs.CanaryKey(pop), nil, func(e *consul.Entry) { s.follow(&s.onTrial, e) })
	})
	watches.Go(func() {
		f.open[name].Watch(ctx, f.settings(name).CurrentKey(), nil, s.followSettings)
	})
	if s.policy.follows {
		f.followPolicies(ctx, s, &watches)
	}
	f.register(t, s)
	if s.clients.follows {
		f.followClients(ctx, s, &watches)
	}
	t.Cleanup(func() {
		cancel()
		watches.Wait()
		f.deregister(t, s)
		s.server.Close()
	})
	return s
}

func (s *stub) admin() string { return s.server.Listener.Addr().String() }

func (f *testFleet) register(t testing.TB, s *stub) {
	t.Helper()
	version, err := f.enroll(s)
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		nodes, err := f.open[s.region].Nodes(t.Context())
		return err == nil && slices.ContainsFunc(nodes, func(n consul.Node) bool {
			return n.Admin == s.admin() && n.Passing && n.RulesVersion == version
		})
	}, patience, tick)
}

// enroll registers a stub with its present rules version, without waiting until others see it.
func (f *testFleet) enroll(s *stub) (version string, err error) {
	host, port, err := net.SplitHostPort(s.admin())
	if err != nil {
		return "", err
	}
	number, err := strconv.Atoi(port)
	if err != nil {
		return "", err
	}
	s.mu.Lock()
	meta := map[string]string{
		consul.MetaRegion: s.region, consul.MetaPoP: s.pop, consul.MetaNode: s.id, consul.MetaAdmin: s.admin(), consul.MetaPrefix: f.prefix,
		consul.MetaRulesVersion: s.version, consul.MetaRulesRefused: s.refuses,
		consul.MetaShedderVersion: s.shedder.version(), consul.MetaShedderRefused: s.shedder.refuses,
	}
	if s.reads > 0 {
		meta[consul.MetaSchema] = strconv.Itoa(s.reads)
	}
	if s.signed != "" {
		meta[consul.MetaSignedBy] = s.signed
	}
	if s.policy.follows {
		meta[consul.MetaPolicySchema], meta[consul.MetaPolicyVersion] = strconv.Itoa(policy.Schema), s.policy.version
	}
	if s.clients.follows {
		meta[consul.MetaClientsSchema], meta[consul.MetaClientsVersion] = "1", s.clients.version
	}
	s.meta = meta
	s.mu.Unlock()
	return meta[consul.MetaRulesVersion], f.consuls[s.region].Client().Agent().ServiceRegister(&api.AgentServiceRegistration{
		ID: f.service(s), Name: consul.Service, Address: host, Port: number, Meta: meta,
		Check: &api.AgentServiceCheck{HTTP: s.server.URL + adminapi.PathReady, Interval: "1s", Timeout: "30s", Status: api.HealthPassing},
	})
}

func (f *testFleet) deregister(t testing.TB, s *stub) {
	t.Helper()
	if f.consuls[s.region].Client().Agent().ServiceDeregister(f.service(s)) != nil {
		return // its Consul was killed
	}
	require.Eventually(t, func() bool {
		nodes, err := f.open[s.region].Nodes(context.Background())
		return err == nil && !slices.ContainsFunc(nodes, func(n consul.Node) bool { return n.Admin == s.admin() })
	}, patience, tick)
}

// follow processes a watch's result.
func (s *stub) follow(to **consul.Pointer, e *consul.Entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	*to = nil
	if e != nil {
		if p, err := consul.ParsePointer(e.Value); err == nil {
			*to = &p
		}
	}
	if s.stays {
		return
	}
	wanted := s.current
	s.canary = s.onTrial != nil && !s.onTrial.Expired(time.Now().Add(s.ahead))
	if s.canary {
		wanted = s.onTrial
	}
	if wanted != nil && wanted.Version != s.refuses {
		s.version = wanted.Version
	}
}

func (s *stub) runs() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.version
}

// serve answers under the lock. A silent stub answers only its health check.
func (s *stub) serve(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if r.URL.Path == adminapi.PathExplain {
			s.asked = append(s.asked, r.URL.Query().Encode())
		}
		w.Header().Set(adminapi.HeaderNode, cmp.Or(s.claims, s.id))
		if s.silent {
			http.Error(w, "the stub is silent", http.StatusInternalServerError)
			return
		}
		next(w, r)
	}
}

func reply(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v)
}

func (s *stub) rules(w http.ResponseWriter, _ *http.Request) {
	answer := adminapi.Rules{
		Version: s.version, Since: time.Now().Add(-time.Hour), Source: adminapi.SourceConsul, Canary: s.canary,
		Rules: []adminapi.Rule{{ID: "per-client"}}, Consul: &adminapi.Condition{OK: true}, Registered: s.meta,
	}
	if s.refuses != "" {
		answer.Refused = &adminapi.Refusal{Version: s.refuses, At: time.Now(), Errors: s.reasons}
	}
	reply(w, answer)
}

func (s *stub) explain(w http.ResponseWriter, r *http.Request) {
	e := s.explanation
	e.Client, e.RulesVersion = r.URL.Query().Get("client"), s.version
	reply(w, e)
}

func (s *stub) reset(w http.ResponseWriter, r *http.Request) {
	if s.resetting != nil {
		s.resetting()
	}
	if s.keeps {
		w.WriteHeader(http.StatusNotFound)
		reply(w, adminapi.Problem{Detail: "rule " + r.URL.Query().Get("rule") + " does not count the described request; it counts those with path=/login; /v1/explain shows which rules count a request"})
		return
	}
	reply(w, adminapi.Reset{Reset: []string{"weir:{" + r.URL.Query().Get("client") + "}:" + r.URL.Query().Get("rule") + ":rr"}})
}

func (s *stub) metrics(w http.ResponseWriter, _ *http.Request) {
	if s.traffic != nil {
		s.traffic(s, s.version)
	}
	var text strings.Builder
	text.WriteString("# HELP go_goroutines Number of goroutines.\n# TYPE go_goroutines gauge\ngo_goroutines 9\n")
	text.WriteString("# HELP weir_requests_total Requests answered, by class of status code.\n# TYPE weir_requests_total counter\n")
	for _, class := range slices.Sorted(maps.Keys(s.requests)) {
		fmt.Fprintf(&text, "weir_requests_total{code_class=%q} %v\n", class, s.requests[class])
	}
	fmt.Fprintf(&text, "# TYPE weir_requests_limited_total counter\nweir_requests_limited_total %v\n", s.limited)
	all := 0.0
	for _, n := range s.requests {
		all += n
	}
	fmt.Fprintf(&text, "# TYPE weir_decisions_total counter\nweir_decisions_total{rule=\"per-client\",outcome=\"limited\"} %v\n", s.limited)
	fmt.Fprintf(&text, "weir_decisions_total{rule=\"tried\",outcome=\"shadow_limited\"} %v\n", s.limited)
	text.WriteString("# TYPE weir_request_seconds histogram\n")
	for _, bound := range adminapi.RequestBounds {
		within := all
		if bound < 1 {
			within -= s.slow
		}
		fmt.Fprintf(&text, "weir_request_seconds_bucket{le=\"%v\"} %v\n", bound, within)
	}
	fmt.Fprintf(&text, "weir_request_seconds_bucket{le=\"+Inf\"} %v\nweir_request_seconds_sum 1\nweir_request_seconds_count %v\n", all, all)
	fmt.Fprintf(&text, "# TYPE weir_rules_info gauge\nweir_rules_info{version=%q} 1\n", s.version)
	if s.policy.version != "" {
		fmt.Fprintf(&text, "# TYPE weir_behavior_policy_info gauge\nweir_behavior_policy_info{version=%q,mode=\"shadow\"} 1\n", s.policy.version)
	}
	_, _ = w.Write([]byte(text.String()))
}

// service returns the id of an edge in a catalog that several tests share.
func (f *testFleet) service(s *stub) string { return consul.Service + "-" + f.prefix + "-" + s.id }
