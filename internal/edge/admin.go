package edge

import (
	"cmp"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/pprof"
	"os"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/weir-edge/weir/pkg/region"
)

// adminHandler serves the operators' side: health, metrics, profiles, and what the
// node knows about its rules.
func (e *Edge) adminHandler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", e.adminIndex)
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, map[string]string{"status": "ok"})
	})
	mux.HandleFunc("GET /readyz", e.ready)
	mux.Handle("GET /metrics", promhttp.HandlerFor(e.metrics.registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /v1/rules", e.showRules)
	mux.HandleFunc("GET /v1/explain", e.explain)
	mux.HandleFunc("DELETE /v1/limits", e.resetLimits)
	mux.HandleFunc("GET /v1/shedder", e.showShedder)
	mux.HandleFunc("PUT /v1/shedder", e.overrideShedder)
	mux.HandleFunc("DELETE /v1/shedder", e.endOverride)
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	return e.named(e.authenticated(mux))
}

// named says in every answer which node it is: one address may lead to another node
// on each machine, as the default 127.0.0.1:8081 does.
func (e *Edge) named(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Weir-Node", e.config.Node.ID)
		next.ServeHTTP(w, r)
	})
}

func (e *Edge) adminIndex(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	fmt.Fprintf(w, `weir edge %s

GET    /healthz      the process is alive
GET    /readyz       it may be sent traffic
GET    /metrics      Prometheus metrics
GET    /v1/rules     the rules in force, and why others were refused; ?brief: without the rules themselves
GET    /v1/explain?client=203.0.113.7&method=GET&host=example.com&path=/x&header=X-Api-Key:k&cookie=a=b&tier=pro
                     which rules would decide this request and what is left; charges nothing
DELETE /v1/limits?rule=ID&client=203.0.113.7…
                     forget one counter; the request is described as for explain
GET    /v1/shedder   how busy the upstreams are, what is shed, and by which settings; ?brief: without the settings
PUT    /v1/shedder?for=15m
                     shed by these settings, on this node alone, for a while; the body is the document
DELETE /v1/shedder   end that now
GET    /debug/pprof/ profiles
`, e.config.Node.ID)
}

// authenticated asks for the token if there is one. Probes stay open, for load
// balancers send no credentials; to those they tell no more than how things are.
func (e *Edge) authenticated(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/healthz" && r.URL.Path != "/readyz" && !e.authorized(r) {
			w.Header().Set("WWW-Authenticate", `Bearer realm="weir"`)
			adminError(w, http.StatusUnauthorized, errors.New("send the token of listen.admin_token_file as Authorization: Bearer TOKEN"))
			return
		}
		next.ServeHTTP(w, r)
	})
}

// authorized reports whether a request may see everything.
func (e *Edge) authorized(r *http.Request) bool {
	if e.config.Listen.AdminTokenFile == "" {
		return true
	}
	want, err := os.ReadFile(e.config.Listen.AdminTokenFile)
	token := strings.TrimSpace(string(want))
	given, isBearer := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	// Hashes have one length, so that comparing them tells nothing of it.
	a, b := sha256.Sum256([]byte(token)), sha256.Sum256([]byte(given))
	return err == nil && token != "" && isBearer && subtle.ConstantTimeCompare(a[:], b[:]) == 1
}

// ready tells whether the node may be sent traffic. A store or Consul that is away,
// and rules that are not the newest, are reported and are no reason not to: the node
// would do no better elsewhere. Who may not see everything gets words in place of
// addresses, paths and errors.
func (e *Edge) ready(w http.ResponseWriter, r *http.Request) {
	rules := e.state.Load()
	state := map[string]string{"rules_version": rules.version()}
	if e.shared != nil {
		state["store"] = wordsOf(e.shared.Ping(r.Context()))
	}
	e.describeRules(state, rules)
	if !e.authorized(r) {
		state = withoutDetail(state)
	}
	status := http.StatusServiceUnavailable
	switch {
	case e.draining.Load():
		state["status"] = "draining"
	case rules.running == nil:
		state["status"] = "no rules"
	default:
		state["status"], status = "ready", http.StatusOK
	}
	writeJSON(w, status, state)
}

// wordsOf is "ok" or the error.
func wordsOf(err error) string {
	if err != nil {
		return err.Error()
	}
	return "ok"
}

// describeRules adds what is not as it should be.
func (e *Edge) describeRules(state map[string]string, rules *ruleState) {
	if rules.refused != nil {
		state["rules_refused"] = rules.refused.String()
	}
	e.keeper.describe(state)
	if e.consul == nil {
		return
	}
	state["consul"] = e.consulState.text()
	if rules.none() && rules.refused == nil && e.consulState.view().OK {
		state["rules"] = "nothing is published; apply rules with regionctl"
	}
	if v := e.cacheState.view(); !v.OK {
		state["rules_cache"] = v.Error
	}
	if e.registration != nil {
		state["registration"] = e.registration.text()
	}
}

// withoutDetail keeps of a state what tells a stranger nothing.
func withoutDetail(state map[string]string) map[string]string {
	brief := map[string]string{"rules_version": state["rules_version"], "rules": "ok"}
	for _, name := range []string{"store", "consul"} {
		switch text, known := state[name]; {
		case known && text == "ok":
			brief[name] = "ok"
		case known:
			brief[name] = "away"
		}
	}
	if _, refused := state["rules_refused"]; refused {
		brief["rules"] = "refused"
	} else if _, said := state["rules"]; said {
		brief["rules"] = "unpublished"
	}
	return brief
}

type ruleView struct {
	ID          string   `json:"id"`
	Description string   `json:"description,omitempty"`
	Mode        string   `json:"mode"`
	Algorithm   string   `json:"algorithm"`
	Limit       int64    `json:"limit"`
	Window      string   `json:"window"`
	Burst       int64    `json:"burst,omitempty"`
	Key         []string `json:"key"`
	OnFailure   string   `json:"on_store_failure"`
}

// showRules tells what runs and why other documents do not; with ?brief not the rules
// themselves, of which there may be megabytes.
func (e *Edge) showRules(w http.ResponseWriter, r *http.Request) {
	state := e.state.Load()
	out := struct {
		Node    string          `json:"node"`
		Version string          `json:"version"`
		Since   time.Time       `json:"since,omitzero"`
		Source  string          `json:"source"`
		Canary  bool            `json:"canary"`
		Stale   bool            `json:"stale"`
		Pointer *region.Pointer `json:"pointer"`
		Rules   []ruleView      `json:"rules,omitzero"`
		Refused *refusal        `json:"refused"`
		Consul  *conditionView  `json:"consul"`
		Cache   *conditionView  `json:"cache"`
	}{
		Node: e.config.Node.ID, Version: state.version(), Source: cmp.Or(state.source, noVersion), Canary: state.canary, Stale: state.stale,
		Pointer: state.pointer, Refused: state.refused,
	}
	if !state.none() {
		out.Since = state.running.since.UTC()
	}
	if !r.URL.Query().Has("brief") {
		out.Rules = state.running.views()
	}
	if e.consul != nil {
		out.Consul, out.Cache = e.consulState.view(), e.cacheState.view()
	}
	writeJSON(w, http.StatusOK, out)
}

func (r *ruleset) views() []ruleView {
	views := []ruleView{}
	if r == nil {
		return views
	}
	for _, c := range r.set.Rules() {
		v := ruleView{
			ID: c.ID, Description: c.Description, Mode: c.Mode.String(), Algorithm: c.Algorithm.String(),
			Limit: c.Limit.Limit, Window: c.Limit.Window.String(), Burst: c.Limit.Burst,
			Key: []string{}, OnFailure: c.Limit.OnFailure.String(),
		}
		for _, part := range c.Key {
			v.Key = append(v.Key, part.String())
		}
		views = append(views, v)
	}
	return views
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	_ = enc.Encode(v) // the client hung up
}

func adminError(w http.ResponseWriter, status int, err error) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	problem := map[string]any{"type": "about:blank", "title": http.StatusText(status), "status": status, "detail": err.Error()}
	if list := messages(err); len(list) > 1 {
		problem["errors"] = list
	}
	_ = json.NewEncoder(w).Encode(problem)
}
