package edge

import (
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/valyala/fasthttp"

	"github.com/weir-edge/weir/internal/adminapi"
	"github.com/weir-edge/weir/pkg/limiter"
	"github.com/weir-edge/weir/pkg/limiter/rules"
	"github.com/weir-edge/weir/pkg/paths"
)

// described is a request that an operator describes in a query string.
type described struct {
	client             netip.Addr
	host, path, method []byte
	paths              paths.Readings
	tier               []byte
	headers, cookies   map[string][]string
	query              map[string][]string
}

var _ rules.Request = (*described)(nil)

// describe reads client, method, host, path, tier, and any number of
// header=Name:value and cookie=name=value. An unknown word is refused: a misspelt
// one would explain another request.
func describe(q url.Values) (*described, error) {
	d := &described{
		method: []byte("GET"), path: []byte("/"),
		headers: map[string][]string{}, cookies: map[string][]string{}, query: map[string][]string{},
	}
	for name, values := range q {
		last := values[len(values)-1]
		switch name {
		case "client":
			a, err := netip.ParseAddr(last)
			if err != nil {
				return nil, fmt.Errorf("client: must be an IP address (got %q)", last)
			}
			d.client = a.Unmap()
		case "method":
			d.method = []byte(last)
		case "host":
			d.host = []byte(last)
		case "path":
			path, query, _ := strings.Cut(last, "?")
			if d.path = []byte(path); !strings.HasPrefix(path, "/") {
				return nil, fmt.Errorf("path: must begin with / (got %q)", last)
			}
			var args fasthttp.Args
			args.Parse(query)
			for k, v := range args.All() {
				d.query[string(k)] = append(d.query[string(k)], string(v))
			}
		case "tier":
			d.tier = []byte(last)
		case "header":
			for _, v := range values {
				header, value, ok := strings.Cut(v, ":")
				if !ok {
					return nil, fmt.Errorf("header: must be Name:value (got %q)", v)
				}
				header = http.CanonicalHeaderKey(header)
				d.headers[header] = append(d.headers[header], strings.TrimSpace(value))
			}
		case "cookie":
			for _, v := range values {
				cookie, value, ok := strings.Cut(v, "=")
				if !ok {
					return nil, fmt.Errorf("cookie: must be name=value (got %q)", v)
				}
				d.cookies[cookie] = append(d.cookies[cookie], value)
			}
		case "rule":
		default:
			return nil, fmt.Errorf("%s: unknown; use client, method, host, path, tier, header or cookie", name)
		}
	}
	if !d.client.IsValid() {
		return nil, fmt.Errorf("client: must be given, as in client=203.0.113.7")
	}
	return d, nil
}

func (d *described) readAs(path []byte) { d.path = path }

func (d *described) Client() netip.Addr { return d.client }
func (d *described) Host() []byte       { return d.host }
func (d *described) Path() []byte       { return d.path }
func (d *described) Method() []byte     { return d.method }
func (d *described) Tier() []byte       { return d.tier }
func (d *described) Trusted() bool      { return true } // an operator may state a cost

func (d *described) Header(name string) ([]byte, int) { return firstOf(d.headers[name]) }
func (d *described) Cookie(name string) ([]byte, int) { return firstOf(d.cookies[name]) }
func (d *described) Query(name string) ([]byte, int)  { return firstOf(d.query[name]) }

func firstOf(values []string) ([]byte, int) {
	if len(values) == 0 {
		return nil, 0
	}
	return []byte(values[0]), len(values)
}

// explain tells which rules would decide a request, by which keys, and what is
// left. It looks at the store and charges nothing.
func (e *Edge) explain(w http.ResponseWriter, r *http.Request) {
	running, ok := e.runningRules(w)
	if !ok {
		return
	}
	m, asked, err := e.matchDescribed(running, r.URL.Query())
	if err != nil {
		adminError(w, http.StatusBadRequest, err)
		return
	}
	for i := range m.Checks {
		m.Checks[i].Peek = true
	}
	var d limiter.Decision
	if err := e.store.Take(r.Context(), m.Checks, &d); err != nil {
		adminError(w, http.StatusBadGateway, err)
		return
	}
	out := adminapi.Explanation{Client: r.URL.Query().Get("client"), RulesVersion: running.version, Rules: []adminapi.RuleDecision{}}
	out.Upstream, out.Class = e.destination(asked)
	for i := range asked.paths.Len() {
		if asked.paths.Len() > 1 {
			out.Readings = append(out.Readings, strings.ReplaceAll(string(asked.paths.At(i)), "\x00", "%2F"))
		}
	}
	switch {
	case d.Allowed:
		out.Verdict = "pass"
	case d.Unavailable:
		out.Verdict = "refuse, 503"
	default:
		out.Verdict = "refuse, 429"
		out.RetryAfter = d.RetryAfter(m.Checks).String()
	}
	for i := range m.Checks {
		c, res, rule := &m.Checks[i], &d.Results[i], m.Rules[i]
		v := adminapi.RuleDecision{
			Rule: rule.ID, Mode: rule.Mode.String(), Algorithm: rule.Algorithm.String(), Key: string(c.Key),
			Cost: c.Cost, Limit: c.Limit.Limit, Window: c.Limit.Window.String(), Allowed: res.Allowed,
			Remaining: res.Remaining, ResetAfter: res.ResetAfter.String(), Source: res.Source.String(),
		}
		if !res.Allowed && res.RetryAfter > 0 {
			v.RetryAfter = res.RetryAfter.String()
		}
		out.Rules = append(out.Rules, v)
	}
	out.OtherMethods = e.otherMethods(running, asked, m.Rules)
	writeJSON(w, http.StatusOK, out)
}

// otherMethods returns the rules that do not count d only because of its method.
func (e *Edge) otherMethods(running *ruleset, d *described, counting []*rules.Compiled) (list []adminapi.RuleMethods) {
	method := d.method
	defer func() { d.method = method }()
	var m rules.Match
	for _, rule := range running.set.Rules() {
		if len(rule.Methods()) == 0 || rule.Mode == rules.Off || slices.Contains(counting, rule) {
			continue
		}
		d.method = []byte(rule.Methods()[0])
		if e.matchReadings(d, &d.paths, running.set, 0, &m, &comparison{}) == nil && slices.Contains(m.Rules, rule) {
			list = append(list, adminapi.RuleMethods{Rule: rule.ID, Methods: rule.Methods()})
		}
	}
	return list
}

// resetLimits forgets the counter of one rule for the described request, in the
// store and in this node's memory of refusals. Other nodes forget a refusal when
// its retry-after ends, or when they are asked too.
func (e *Edge) resetLimits(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	id := q.Get("rule")
	running, ok := e.runningRules(w)
	if !ok {
		return
	}
	if _, known := running.set.Rule(id); !known {
		adminError(w, http.StatusBadRequest, fmt.Errorf("rule: must name one of the running rules (got %q); see /v1/rules", id))
		return
	}
	m, _, err := e.matchDescribed(running, q)
	if err != nil {
		adminError(w, http.StatusBadRequest, err)
		return
	}
	reset := []string{}
	for i := range m.Checks {
		if m.Rules[i].ID != id {
			continue
		}
		if err := e.store.Reset(r.Context(), m.Checks[i:i+1]); err != nil {
			adminError(w, http.StatusBadGateway, fmt.Errorf("%w; the counter stands as it was, try again", err))
			return
		}
		reset = append(reset, string(m.Checks[i].Key))
	}
	if len(reset) == 0 {
		adminError(w, http.StatusNotFound, fmt.Errorf("rule %s does not count the described request; /v1/explain shows which do", id))
		return
	}
	e.log.Info("limits reset", "rule", id, "keys", reset)
	writeJSON(w, http.StatusOK, adminapi.Reset{Reset: reset})
}

// runningRules answers 503 if there are no rules yet.
func (e *Edge) runningRules(w http.ResponseWriter) (*ruleset, bool) {
	running := e.rules.running.Load()
	if running == nil {
		adminError(w, http.StatusServiceUnavailable, errNoRules)
	}
	return running, running != nil
}

// matchDescribed finds the checks of the request that a query string describes, as for a
// request that is received.
func (e *Edge) matchDescribed(running *ruleset, q url.Values) (*rules.Match, *described, error) {
	d, err := describe(q)
	if err != nil {
		return nil, nil, err
	}
	path := d.path
	if e.config.Server.Paths == pathsNormalized {
		path, err = paths.AppendNormal(nil, path)
	}
	if err == nil {
		err = e.config.readPath(&d.paths, path)
	}
	if err != nil {
		return nil, nil, err
	}
	m := &rules.Match{}
	return m, d, e.matchReadings(d, &d.paths, running.set, 0, m, &comparison{})
}

// destination is where a described request would go, and as what. Its headers are
// believed, as if it came through a trusted proxy.
func (e *Edge) destination(d *described) (upstream, class string) {
	var scratch rules.Match
	s := e.keeper.active.Load()
	return e.routes.find(d, &scratch).name, s.document.Classes[s.classes.Class(d, &scratch)].Name
}
