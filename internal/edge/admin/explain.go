package admin

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/weir-edge/weir/internal/adminapi"
	"github.com/weir-edge/weir/internal/clientlist"
	"github.com/weir-edge/weir/internal/edge/config"
	"github.com/weir-edge/weir/internal/edge/decide"
	"github.com/weir-edge/weir/internal/policy"
	"github.com/weir-edge/weir/pkg/limiter"
	"github.com/weir-edge/weir/pkg/limiter/rules"
	"github.com/weir-edge/weir/pkg/paths"
)

// described are the fields of a request that an operator describes in a query string.
type described struct{ headers, cookies map[string][][]byte }

var _ decide.Fields = (*described)(nil)

// Header implements decide.Fields.
func (d *described) Header(name string) [][]byte { return d.headers[name] }

// Cookie implements decide.Fields.
func (d *described) Cookie(name string) ([]byte, int) {
	if values := d.cookies[name]; len(values) > 0 {
		return values[0], len(values)
	}
	return nil, 0
}

// describe reads client, method, host, path, tier, and any number of header=Name:value and
// cookie=name=value. An unknown parameter is an error, because a typo would explain a
// different request.
func describe(q url.Values) (r *decide.Request, path []byte, err error) {
	d := &described{map[string][][]byte{}, map[string][][]byte{}}
	path = []byte("/")
	r = &decide.Request{Method: []byte("GET"), Fields: d, Trusted: true, DryRun: true} // an operator may state a cost
	for name, values := range q {
		last := values[len(values)-1]
		switch name {
		case "client":
			a, err := netip.ParseAddr(last)
			if err != nil {
				return nil, nil, fmt.Errorf("client: must be an IP address (got %q)", last)
			}
			r.Client = a.Unmap()
		case "method":
			r.Method = []byte(last)
		case "host":
			r.Host = []byte(last)
		case "path":
			if path, r.Query, _ = bytes.Cut([]byte(last), []byte("?")); !strings.HasPrefix(last, "/") {
				return nil, nil, fmt.Errorf("path: must begin with / (got %q)", last)
			}
		case "tier":
			r.Tier = []byte(last)
		case "header":
			for _, v := range values {
				header, value, ok := strings.Cut(v, ":")
				if !ok {
					return nil, nil, fmt.Errorf("header: must be Name:value (got %q)", v)
				}
				header = http.CanonicalHeaderKey(header)
				d.headers[header] = append(d.headers[header], []byte(strings.TrimSpace(value)))
			}
		case "cookie":
			for _, v := range values {
				cookie, value, ok := strings.Cut(v, "=")
				if !ok {
					return nil, nil, fmt.Errorf("cookie: must be name=value (got %q)", v)
				}
				d.cookies[cookie] = append(d.cookies[cookie], []byte(value))
			}
		case "hash":
			r.Hashes = map[string]string{}
			for _, v := range values {
				part, hash, err := parseHash(v)
				if err != nil {
					return nil, nil, err
				}
				r.Hashes[part] = hash
			}
		case "rule":
		default:
			return nil, nil, fmt.Errorf("%s: unknown; use client, method, host, path, tier, header, cookie or hash, or domain and entry for a call of Envoy", name)
		}
	}
	if !r.Client.IsValid() {
		return nil, nil, fmt.Errorf("client: must be given, as in client=203.0.113.7")
	}
	return r, path, nil
}

// parseHash parses "header:X-Api-Key:HASH", with the hash that keys contain instead of a
// secret value.
func parseHash(text string) (part, hash string, err error) {
	if end := strings.LastIndexByte(text, ':'); end >= 0 {
		part, hash = text[:end], text[end+1:]
	}
	kind, name, _ := strings.Cut(part, ":")
	known := kind == "header" || kind == "cookie" || kind == "query"
	if !known || name == "" || !rules.IsHash("~"+hash) {
		return "", "", fmt.Errorf("hash: must be header:NAME:HASH, cookie:NAME:HASH or query:NAME:HASH, with the first 32 hex digits of the value's SHA-256 (got %q)", text)
	}
	if kind == "header" {
		part = "header:" + http.CanonicalHeaderKey(name)
	}
	return part, hash, nil
}

// explain shows which rules would decide a request, by which keys, and what remains. It
// reads the store and charges nothing.
func (a *Admin) explain(w http.ResponseWriter, r *http.Request) {
	running, ok := a.runningRules(w)
	if !ok {
		return
	}
	described, err := a.decide(running, r.URL.Query())
	if err != nil {
		adminError(w, http.StatusBadRequest, err)
		return
	}
	if described.Err != nil {
		adminError(w, http.StatusBadGateway, described.Err)
		return
	}
	m, d := &described.Match, &described.Decision
	call := r.URL.Query().Has("domain")
	var judged *adminapi.Behavior
	if a.Decider.EvaluatesBehavior(described) && !call {
		judged = a.behavior(described)
	}
	out := adminapi.Explanation{Client: r.URL.Query().Get("client"), RulesVersion: a.Rules.State().Version(), Rules: []adminapi.RuleDecision{}}
	for i := range described.Paths.Len() {
		if described.Paths.Len() > 1 {
			out.Readings = append(out.Readings, strings.ReplaceAll(string(described.Paths.At(i)), "\x00", "%2F"))
		}
	}
	switch {
	case d.Allowed:
		out.Verdict = "pass"
	case d.StoreUnavailable:
		out.Verdict = "refuse, 503"
	default:
		out.Verdict = "refuse, 429"
		out.RetryAfter = d.RetryAfter(m.Checks).String()
	}
	early := "" // what refuses the request before any rule
	if judged != nil && judged.RefusedFor != "" && judged.Mode == policy.Enforce {
		out.Verdict, out.RetryAfter, early = "refuse, 429", judged.RefusedFor, adminapi.SourceBehavior
	}
	out.Behavior = judged
	if out.ListEntry = described.ListEntry; out.ListEntry != nil && out.ListEntry.Action == clientlist.Block {
		out.Verdict, out.RetryAfter, early = "refuse, 403", "", adminapi.SourceBlocked
	} else if !call {
		out.Upstream, out.Class = a.Config.Groups()[described.Upstream], a.Decider.Class(described)
	}
	for i := range m.Checks {
		c, res, rule := &m.Checks[i], &d.Results[i], m.Rules[i]
		v := adminapi.RuleDecision{
			Rule: rule.ID, Mode: rule.Mode.String(), Algorithm: rule.Algorithm.String(), Key: string(c.Key),
			Cost: described.Costs[i], Limit: described.Quota(c.Limit), Window: c.Limit.Window.String(), Allowed: res.Allowed,
			Remaining: described.Tightened(c.Limit, res.Remaining), ResetAfter: res.ResetAfter.String(), Source: res.Source.String(), Variant: variantOf(rule),
		}
		if v.Leased = c.Limit.Leased; v.Leased && a.Chain.Leases != nil {
			var left time.Duration
			if v.Held, left = a.Chain.Leases.Held(c.Key); v.Held > 0 {
				v.HeldFor = left.String()
			}
		}
		if c.Limit.Reported && a.Chain.Reports != nil {
			delay := limiter.ReportDelay(a.Config.Store.Timeout)
			v.Delay, v.Overshoot = delay.String(), c.Limit.Overshoot(limiter.BoundDemand, delay, a.Nodes())
		}
		if u := c.Limit.UnderLoad; u != nil {
			followed := a.Decider.UnderLoad.Utilization(described.Upstream)
			v.UnderLoad = &adminapi.UnderLoad{
				From: u.From, Share: u.Share, Utilization: float64(followed) / limiter.FullLoad, Step: u.Step(followed), Steps: limiter.LoadSteps,
				Full: c.Limit.Full().Limit, Lowest: c.Limit.Floor().Limit,
			}
		}
		v.Global = a.explainGlobal(r.Context(), c)
		if !res.Allowed && res.RetryAfter > 0 {
			v.RetryAfter = res.RetryAfter.String()
		}
		if early != "" {
			v.Allowed, v.RetryAfter, v.Source = false, "", early
		}
		out.Rules = append(out.Rules, v)
	}
	if !call {
		out.OtherMethods = a.otherMethods(running, described)
	}
	writeJSON(w, http.StatusOK, out)
}

// otherMethods returns the rules that skip a request only because of its method.
func (a *Admin) otherMethods(running decide.Rules, described *decide.Request) (list []adminapi.RuleMethods) {
	other := *described
	other.Match = rules.Match{}
	for _, rule := range running.Set().Rules() {
		if len(rule.Methods()) == 0 || rule.Mode == rules.Off || counts(described.Match.Rules, rule) {
			continue
		}
		other.Method = []byte(rule.Methods()[0])
		if a.Decider.FindChecks(&other) == nil && counts(other.Match.Rules, rule) {
			list = append(list, adminapi.RuleMethods{Rule: rule.ID, Methods: rule.Methods()})
		}
	}
	return list
}

// counts reports whether a rule, or its experiment, is among those that count a request.
func counts(list []*rules.Compiled, rule *rules.Compiled) bool {
	return slices.ContainsFunc(list, func(c *rules.Compiled) bool { return c.Base() == rule })
}

// resetLimits forgets the counter of one rule for the described request, in the store and
// in this node's memory of refusals. Other nodes forget a refusal when its retry-after
// ends, or when they are reset too.
func (a *Admin) resetLimits(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	id := q.Get("rule")
	running, ok := a.runningRules(w)
	if !ok {
		return
	}
	rule, known := running.Set().Rule(id)
	if !known {
		adminError(w, http.StatusBadRequest, fmt.Errorf("rule: must name one of the running rules (got %q); see /v1/rules", id))
		return
	}
	described, err := a.decide(running, q)
	if err != nil {
		adminError(w, http.StatusBadRequest, err)
		return
	}
	m, reset := &described.Match, []string{}
	for i := range m.Checks {
		if m.Rules[i].ID != id {
			continue
		}
		if err := a.Chain.Reset.Reset(r.Context(), m.Checks[i:i+1]); err != nil {
			adminError(w, http.StatusBadGateway, fmt.Errorf("%w; the shared counter is unchanged, though this node's own may be reset; try again", err))
			return
		}
		if a.Exchange != nil {
			if err := a.Exchange.Reset(r.Context(), m.Checks[i:i+1]); err != nil {
				adminError(w, http.StatusBadGateway, err)
				return
			}
		}
		reset = append(reset, string(m.Checks[i].Key))
	}
	if len(reset) == 0 {
		adminError(w, http.StatusNotFound, uncounted(rule))
		return
	}
	a.Log.Info("limits reset", "rule", id, "keys", reset)
	writeJSON(w, http.StatusOK, adminapi.Reset{Reset: reset})
}

// uncounted says what a request needs for a rule to count it.
func uncounted(rule *rules.Compiled) error {
	why := ""
	if wants := rule.RequiredParams(); rule.Mode == rules.Off {
		why = "; its mode is off"
	} else if len(wants) > 0 {
		why = "; it counts those with " + strings.Join(wants, ", ")
	}
	return fmt.Errorf("rule %s does not count the described request%s; /v1/explain shows which rules count a request", rule.ID, why)
}

// errNoRules is the error of endpoints that need rules before there are any.
var errNoRules = errors.New("there are no rules yet; /readyz says why")

// runningRules answers 503 if there are no rules yet.
func (a *Admin) runningRules(w http.ResponseWriter) (decide.Rules, bool) {
	running := a.Decider.Rules()
	if running == nil {
		adminError(w, http.StatusServiceUnavailable, errNoRules)
	}
	return running, running != nil
}

// decide decides the request that a query string describes, as it would a received one. The
// error says what is wrong with the description; that of the request, why the store did not
// answer.
func (a *Admin) decide(running decide.Rules, q url.Values) (*decide.Request, error) {
	if q.Has("domain") || q.Has("entry") {
		r, err := matchCall(running, q)
		if err == nil {
			a.Decider.Check(r)
		}
		return r, err
	}
	r, path, err := describe(q)
	if err != nil {
		return nil, err
	}
	r.Rules, r.Began = running, time.Now()
	if a.Config.Server.Paths == config.PathsNormalized {
		path, err = paths.AppendNormal(nil, path)
	}
	if err == nil {
		err = a.Decider.ReadPath(r, path)
	}
	if err == nil && a.Decider.Decide(r) == decide.Malformed {
		err = r.Err
	}
	return r, err
}
