// Package admin answers the operators of a node.
package admin

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/pprof"
	"os"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/weir-edge/weir/internal/adminapi"
	"github.com/weir-edge/weir/internal/clientlist"
	"github.com/weir-edge/weir/internal/edge/chain"
	"github.com/weir-edge/weir/internal/edge/config"
	"github.com/weir-edge/weir/internal/edge/decide"
	"github.com/weir-edge/weir/internal/edge/documents"
	"github.com/weir-edge/weir/internal/edge/exchange"
	"github.com/weir-edge/weir/internal/edge/recent"
	"github.com/weir-edge/weir/internal/experiment"
	"github.com/weir-edge/weir/internal/httpconns"
	"github.com/weir-edge/weir/internal/metric"
	"github.com/weir-edge/weir/internal/policy"
	"github.com/weir-edge/weir/internal/shedding"
	"github.com/weir-edge/weir/internal/webpage"
	"github.com/weir-edge/weir/pkg/limiter/rules"
)

// Admin serves operators: health, metrics, profiles, and the state of the node. Its fields are
// set before the node runs.
type Admin struct {
	Config       *config.Config
	Certificates config.Certificates
	Log          *slog.Logger
	Registry     metric.Registry
	Decider      *decide.Decider
	Chain        *chain.Chain
	Nodes        func() int // how many share the store

	Rules    *documents.Keeper[rules.Set]
	Shedding *documents.Keeper[shedding.Document]
	Policy   *documents.Keeper[policy.Policy]    // nil without a policy
	Clients  *documents.Keeper[clientlist.List]  // nil without Consul
	Tally    func(rule string) *experiment.Tally // of a rule with an experiment; nil: it has none

	Exchange *exchange.Exchange // nil without listen.peer
	Regions  func() []string    // likewise
	Recent   *recent.Ring       // nil without one
	// Top returns whom the rules refused most lately, so many keys of each.
	Top func(now time.Time, most int) []adminapi.TopRule

	Draining     func() bool
	Store        func() string            // what does not answer
	Registration *documents.Condition     // nil if the node does not register
	Meta         func() map[string]string // what it registers of itself

	tokenState *documents.Condition
}

// Handler returns what answers operators.
func (a *Admin) Handler() http.Handler {
	a.tokenState = documents.NewCondition(a.Log, "listen.admin_token_file has no token; the admin listener refuses everyone", "listen.admin_token_file has a token again", nil)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", a.index)
	mux.HandleFunc("GET "+adminapi.PathIndex, a.adminIndex)
	mux.HandleFunc("GET /assets/", showPage)
	mux.HandleFunc("GET "+adminapi.PathHealth, func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, map[string]string{"status": "ok"})
	})
	mux.HandleFunc("GET "+adminapi.PathReady, a.ready)
	mux.Handle("GET "+adminapi.PathMetrics, promhttp.HandlerFor(a.Registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET "+adminapi.PathRules, a.showRules)
	mux.HandleFunc("GET "+adminapi.PathExplain, a.explain)
	mux.HandleFunc("DELETE "+adminapi.PathLimits, a.resetLimits)
	mux.HandleFunc("GET "+adminapi.PathShedder, a.showShedder)
	mux.HandleFunc("PUT "+adminapi.PathShedder, a.overrideShedder)
	mux.HandleFunc("DELETE "+adminapi.PathShedder, a.endOverride)
	mux.HandleFunc("GET "+adminapi.PathPolicy, a.showPolicy)
	mux.HandleFunc("GET "+adminapi.PathClients, a.showClients)
	mux.HandleFunc("GET "+adminapi.PathExperiment, a.showExperiment)
	mux.HandleFunc("GET "+adminapi.PathRecent, a.showRecent)
	mux.HandleFunc("GET "+adminapi.PathTop, a.showTop)
	mux.HandleFunc("GET "+adminapi.PathGlobal, a.showGlobal)
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	return a.named(a.guarded(a.authenticated(mux)))
}

// page shows the API's data in a browser and offers its actions.
var page = webpage.Handler(map[string]string{"/": "node.html"}, func(w http.ResponseWriter, r *http.Request) {
	adminError(w, http.StatusNotFound, errors.New("no such file"))
})

// index serves the page to browsers and the list of endpoints to other programs. Where a
// token is required, browsers get no further than 401.
func (a *Admin) index(w http.ResponseWriter, r *http.Request) {
	w.Header().Add("Vary", "Accept")
	if strings.Contains(r.Header.Get("Accept"), "text/html") {
		showPage(w, r)
		return
	}
	a.adminIndex(w, r)
}

func showPage(w http.ResponseWriter, r *http.Request) {
	webpage.Protect(w.Header())
	page.ServeHTTP(w, r)
}

// named adds the node's name to every answer.
func (a *Admin) named(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set(adminapi.HeaderNode, a.Config.Node.ID)
		next.ServeHTTP(w, r)
	})
}

func (a *Admin) adminIndex(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	fmt.Fprintf(w, "weir edge %s\n\n%s", a.Config.Node.ID, Endpoints)
}

// Endpoints lists what an admin listener answers.
const Endpoints = `GET    /             a page for browsers, unless callers need a token; for other programs this list, as /v1 for all
GET    /healthz      200 while the process lives
GET    /readyz       200; 503 while the node stops or has no rules, but not while store or Consul are unreachable
                     or rules are outdated
GET    /metrics      Prometheus metrics
GET    /v1/rules     the active rules, and why the newest document was refused; ?brief: without the rules themselves
GET    /v1/explain?client=203.0.113.7&method=GET&host=example.com&path=/x&header=X-Api-Key:k&cookie=a=b&tier=pro
                     which rules would decide this request and what is left; charges nothing
DELETE /v1/limits?rule=ID&client=203.0.113.7…
                     reset the counter of one rule; the request is described as for explain
GET    /v1/shedder   the active settings, when they expire, and the state of each upstream group; ?brief: without
                     the settings
PUT    /v1/shedder?for=15m
                     shed by these settings temporarily, on this node only; the body is the document
DELETE /v1/shedder   end that now
GET    /v1/policy    version, mode and source of the active behavior policy, and why another was refused
GET    /v1/clients   how many client networks are blocked and allowed manually, since when, when the next entry ends,
                     and whether Consul and the cache work
GET    /v1/experiment?rule=ID
                     what this node counted of both variants of a rule, since when, by slice of its keys, and the
                     memory of one counter of each, from Redis
GET    /v1/top?most=10
                     whom the rules refused most in the last one to two minutes, and suspicious clients
GET    /v1/global    for keys of global rules that the node owns: the age of its knowledge of other regions, how far
                     limits were exceeded and the bound, what the region holds in escrow
GET    /v1/recent?client=203.0.113.7&refused&rules&most=100
                     the latest requests, at most 1,000, as JSON lines: for a client or network, only those refused,
                     only those that rules decided; 404 without recent.keep
GET    /debug/pprof/ Go profiles
`

// authenticated requires the configured credentials, if any. Probes stay open, since load
// balancers send no credentials; without credentials they reveal only whether the node
// works.
func (a *Admin) authenticated(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !a.authorized(r) {
			if r.ContentLength != 0 { // never wait for the body of an unauthenticated caller
				_ = http.NewResponseController(w).SetReadDeadline(time.Unix(1, 0))
				w.Header().Set("Connection", "close")
			}
			if !httpconns.Probe(r) {
				a.unauthorized(w, r)
				return
			}
		} else {
			httpconns.Known(r, !a.Config.Listen.Open())
		}
		next.ServeHTTP(w, r)
	})
}

func (a *Admin) unauthorized(w http.ResponseWriter, r *http.Request) {
	if !a.certified(r) {
		adminError(w, http.StatusForbidden, errors.New("present a client certificate issued by an authority in listen.admin_tls.client_ca_file"))
		return
	}
	w.Header().Set("WWW-Authenticate", `Bearer realm="weir"`)
	adminError(w, http.StatusUnauthorized, errors.New("send the token of listen.admin_token_file as Authorization: Bearer TOKEN"))
}

// certified reports whether a request came with the certificate that it needs. TLS does not
// demand one, because probes come without.
func (a *Admin) certified(r *http.Request) bool {
	return !a.Config.Listen.Mutual() || r.TLS != nil && a.Certificates.Admin.Vouches(r.TLS)
}

// authorized reports whether a request may see everything.
func (a *Admin) authorized(r *http.Request) bool {
	if !a.certified(r) {
		return false
	}
	if a.Config.Listen.AdminTokenFile == "" {
		return true
	}
	token, err := a.token()
	a.tokenState.Note(err)
	given, isBearer := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	// Hashes have one length, so comparing them reveals nothing about the token's.
	x, y := sha256.Sum256([]byte(token)), sha256.Sum256([]byte(given))
	return err == nil && isBearer && subtle.ConstantTimeCompare(x[:], y[:]) == 1
}

// token returns the token that requests need, which may have been replaced.
func (a *Admin) token() (string, error) {
	text, err := os.ReadFile(a.Config.Listen.AdminTokenFile)
	token := strings.TrimSpace(string(text))
	if err == nil && token == "" {
		err = fmt.Errorf("%s is empty", a.Config.Listen.AdminTokenFile)
	}
	return token, err
}

// ready reports whether the node may receive traffic. An unreachable store or Consul and
// stale rules are reported, but do not fail the probe: another node would do no better.
// Callers without the token see status words instead of addresses, paths and errors.
func (a *Admin) ready(w http.ResponseWriter, r *http.Request) {
	state := &adminapi.Readiness{}
	if a.Chain.Shared != nil {
		state.Store = a.Store()
	}
	a.describeRules(state)
	state.ShedderRefused, state.ShedderCache, state.ShedderSignature = a.Shedding.Faults()
	if a.Policy != nil {
		state.PolicyRefused, state.PolicyCache, state.PolicySignature = a.Policy.Faults()
	}
	state.Registration = a.Registration.Text()
	if !a.authorized(r) {
		state = withoutDetail(state)
	}
	status := http.StatusServiceUnavailable
	switch {
	case a.Draining():
		state.Status = "draining"
	case a.Rules.State().Active == nil:
		state.Status = "no rules"
	default:
		state.Status, status = "ready", http.StatusOK
	}
	writeJSON(w, status, state)
}

func (a *Admin) describeRules(state *adminapi.Readiness) {
	k := a.Rules
	state.RulesVersion, state.Consul = k.State().Version(), k.ConsulState.Text()
	state.RulesRefused, state.RulesCache, state.RulesSignature = k.Faults()
	if state.RulesVersion != adminapi.NoVersion {
		return
	}
	state.RulesBootstrap = k.BootstrapState.Fault()
	if state.RulesRefused == "" && state.Consul == adminapi.OK {
		state.Rules = "nothing is published; apply rules with regionctl"
	}
}

// withoutDetail removes what a caller without the token must not see.
func withoutDetail(state *adminapi.Readiness) *adminapi.Readiness {
	brief := &adminapi.Readiness{RulesVersion: state.RulesVersion, Rules: adminapi.OK, Store: okOrAway(state.Store), Consul: okOrAway(state.Consul)}
	if state.RulesRefused != "" {
		brief.Rules = "refused"
	} else if state.Rules != "" {
		brief.Rules = "unpublished"
	}
	return brief
}

func okOrAway(text string) string {
	if text == "" || text == adminapi.OK {
		return text
	}
	return adminapi.Away
}

// showRules lists the running rules and why other documents were refused; ?brief leaves
// out the rules themselves, which may take megabytes.
func (a *Admin) showRules(w http.ResponseWriter, r *http.Request) {
	k := a.Rules
	s := k.State()
	out := adminapi.Rules{
		Node: a.Config.Node.ID, Version: s.Version(), Source: s.Source(), Canary: s.Canary, Stale: s.Stale, Pointer: s.Pointer, Refused: s.Refused,
		Consul: k.ConsulState.View(), Cache: k.CacheState.View(), Signature: k.SignatureState.View(),
	}
	if s.Version() != adminapi.NoVersion {
		out.Since = s.Since.UTC()
	}
	if !r.URL.Query().Has("brief") {
		out.Rules = views(s.Active)
	}
	if a.Registration != nil {
		out.Registered = a.Meta()
	}
	writeJSON(w, http.StatusOK, out)
}

func views(active *documents.Document[rules.Set]) []adminapi.Rule {
	views := []adminapi.Rule{}
	if active == nil {
		return views
	}
	for _, c := range active.Compiled.Rules() {
		v := adminapi.Rule{
			ID: c.ID, Description: c.Description, Mode: c.Mode.String(), Algorithm: c.Algorithm.String(),
			Limit: c.Limit.Limit, Window: c.Limit.Window.String(), Burst: c.Limit.Burst,
			Key: []string{}, OnFailure: c.Limit.OnFailure.String(),
		}
		if word := c.Limit.Consistency(); word != "strict" {
			v.Consistency = word
		}
		if c.Experiment != nil {
			v.Experiment = c.Experiment.Share
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
	problem := adminapi.Problem{Type: "about:blank", Title: http.StatusText(status), Status: status, Detail: err.Error()}
	if list := documents.Faults(err); len(list) > 1 {
		problem.Errors = list
	}
	_ = json.NewEncoder(w).Encode(problem)
}
