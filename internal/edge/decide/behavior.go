package decide

import (
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/weir-edge/weir/internal/policy"
	"github.com/weir-edge/weir/internal/top"
	"github.com/weir-edge/weir/pkg/behavior"
	"github.com/weir-edge/weir/pkg/limiter"
	"github.com/weir-edge/weir/pkg/limiter/rules"
)

// Behavior judges clients and routes by their past requests, and applies the policy.
type Behavior struct {
	Policy  func() *policy.Policy // nil until there is one
	Clients *behavior.Table
	Routes  *behavior.Table
	Stop    <-chan struct{} // ends all delays
	// AboveMildest is called once for each request of a subject above the mildest tier.
	AboveMildest func(*Request)
	// Rose is called when a request moves its client or its route to a severer tier, and at
	// the first request of a subject that other nodes' counts moved.
	Rose func(*Request, *Rise)

	// names hides which subjects and routes share a place. Nodes that exchange counts use
	// the same secret.
	names     atomic.Pointer[Secret]
	suspects  top.Sketch // who of the clients above the mildest tier sends most
	delayed   atomic.Int64
	delayedOf [delayedKinds]atomic.Int32
}

// The kinds of subjects.
const (
	KindClient = "client"
	KindRoute  = "route"
)

// Rise reports that a subject entered a severer tier.
type Rise struct {
	Kind    string // KindClient or KindRoute
	Tier    string
	Score   float64
	Reasons []behavior.Reason
	Shared  bool // by the counts of several nodes
}

// NewBehavior returns a Behavior that keeps up to subjects clients, and up to 1/128 as many
// of the routes that ever answered 401 or 403.
func NewBehavior(active func() *policy.Policy, subjects int, now time.Time) *Behavior {
	c := &Behavior{
		Policy: active, Clients: behavior.NewTable(subjects, behavior.Default(), now), Routes: behavior.NewTable(subjects/128, behavior.DefaultRoutes(), now),
	}
	c.names.Store(RandomSecret())
	if p := active(); p != nil {
		c.Activate(p)
	}
	return c
}

// SetNames names all subjects from now on by a secret that other nodes share. Counts under
// the old names are forgotten.
func (c *Behavior) SetNames(s *Secret) { c.names.Store(s) }

// Activate makes the tables judge by a policy that has become active.
func (c *Behavior) Activate(p *policy.Policy) {
	c.Clients.SetPolicy(p.Clients)
	if p.Routes != nil {
		c.Routes.SetPolicy(p.Routes)
	}
}

// consults reports whether the active policy, if any, depends on a header.
func (c *Behavior) consults(header string) bool {
	if c == nil {
		return false
	}
	p := c.Policy()
	return p != nil && p.ReadsHeader(header)
}

// Delayed returns how many requests are waiting now.
func (c *Behavior) Delayed() int64 { return c.delayed.Load() }

// Effect is what happened to a request because of its tier.
type Effect string

// The effects. In shadow mode they are what would have happened.
const (
	Passed     Effect = "passed"
	DelayedFor Effect = "delayed"
	Refused    Effect = "refused"
	Crowded    Effect = "crowded" // refused, because MaxDelayed are already waiting
)

// BehaviorResult is the policy's judgment of one request.
type BehaviorResult struct {
	Policy *policy.Policy // nil: the request is exempt, or was refused before it was judged
	Tier   int
	own    int     // tier of the client alone
	Score  float64 // of the client
	Effect Effect

	client, route uint64 // subjects
	guessed       bool   // credentials are guessed at the route
	login         bool   // the request carries some to such a route
	refused       time.Duration
	print         uint64
	lacks         bool
	wait          time.Duration
	factor        float64 // of all limits; 0 if they apply unchanged
}

// Name returns the name of the tier.
func (k *BehaviorResult) Name() string { return k.Policy.Effects[k.Tier].Name }

// Classify determines how the policy judges the client of a request and its route. Rules may
// count by that.
func (c *Behavior) Classify(r *Request) {
	p := c.Policy()
	if p == nil {
		return
	}
	r.path = r.Paths.At(0)
	if p.Exempts(view{r}, &r.scratch) {
		return
	}
	k := &r.BehaviorResult
	k.Policy = p
	k.client, k.route = c.clientOf(p, r), c.routeOf(r)
	st := c.Clients.Status(k.client, r.Began)
	k.Score, k.Tier, k.own, k.refused = st.Score, st.Tier, st.Tier, st.Refused
	if p.Routes != nil {
		route := c.Routes.Status(k.route, r.Began)
		if k.guessed = route.Tier > 0; !st.Proven {
			k.Tier = max(k.Tier, route.Tier)
		}
		c.announce(r, KindRoute, c.Routes, k.route, route)
	}
	c.announce(r, KindClient, c.Clients, k.client, st)
	k.Tier = min(k.Tier, len(p.Effects)-1) // the policy may have been replaced
}

// announce reports once that other nodes' counts moved a subject to a severer tier.
func (c *Behavior) announce(r *Request, kind string, table *behavior.Table, key uint64, st behavior.Status) {
	if st.Rose && !r.DryRun && table.Announce(key) && st.Tier > 0 { // it may have cooled down meanwhile
		c.rose(r, kind, table, key, st, r.Began, true)
	}
}

// enforce applies the tier: it scales the costs of the checks and delays the request. It
// reports whether the request may proceed.
func (c *Behavior) enforce(r *Request) bool {
	k := &r.BehaviorResult
	p := k.Policy
	if p == nil || r.DryRun {
		return true
	}
	if k.refused == 0 { // while the header is as it came
		k.print, k.lacks, k.login = c.print(r), lacks(r), k.guessed && logsIn(r)
	}
	if k.Tier == 0 {
		return true
	}
	e := &p.Effects[k.Tier]
	k.Effect = Passed
	switch {
	case k.refused > 0:
		k.Effect, k.wait = Refused, k.refused
	case r.CompletionUnknown: // a gateway waits for this answer only so long
	case p.Shadow:
		if e.Delay > 0 {
			k.Effect = DelayedFor
		}
	case e.Delay > 0:
		k.Effect, k.wait = c.delay(k.client, e.Delay), e.Delay
		if k.Effect == Crowded && k.own == 0 {
			k.Effect = Passed // routes are never refused
		}
	}
	c.AboveMildest(r)
	if k.own > 0 {
		c.suspects.Add(r.Began, k.client, r.Client, r.subject(p), nil)
	}
	if p.Shadow {
		return true
	}
	if e.Limits != 1 {
		k.factor = e.Limits
		scale(r.Match.Checks, e.Limits, rand.Float64)
	}
	return k.Effect == Passed || k.Effect == DelayedFor
}

// tighten makes a request that is only described count as one of its tier, without the
// random rounding.
func (r *Request) tighten() {
	p := r.BehaviorResult.Policy
	if p == nil || p.Shadow {
		return
	}
	if factor := p.Effects[r.BehaviorResult.Tier].Limits; factor != 1 {
		r.BehaviorResult.factor = factor
		scale(r.Match.Checks, factor, func() float64 { return 0 })
	}
}

// scale makes a request count as if the limits were smaller by a factor. A cost between two
// whole numbers is rounded at random, so that the mean is exact.
func scale(checks []limiter.Check, factor float64, chance func() float64) {
	for i := range checks {
		c := &checks[i]
		if !scales(c.Limit) {
			continue
		}
		exact := float64(c.Cost) / factor
		cost := int64(exact)
		if chance() < exact-float64(cost) {
			cost++
		}
		c.Cost = max(c.Cost, min(cost, c.Limit.MaxCost()))
	}
}

// scales reports whether tiers scale a limit: concurrency slots are not divided.
func scales(l *limiter.Limit) bool { return l.Algorithm != limiter.Concurrency }

// TierMade reports whether refusals of a client are due to its tier, given the factor of
// its limits; 0 means that limits apply unchanged. Where less than half is left, refusals
// say nothing about the client: if they counted, it might never leave the tier.
func TierMade(factor float64) bool { return factor > 0 && factor < 0.5 }

// Learn counts a request that is finished. status is the origin's answer; 0 if none came.
func (c *Behavior) Learn(r *Request, v Verdict, status int, now time.Time) {
	k := &r.BehaviorResult
	if k.Policy == nil || v != Pass && (v != Limited || r.Decision.StoreUnavailable) {
		return // what weir sheds or refuses because of the tier says nothing about the client
	}
	if v == Limited && TierMade(k.factor) {
		return
	}
	e := behavior.Event{Route: k.route, Status: status}
	if v == Limited {
		// Count what the client was told: whole seconds, although the limit may have room
		// earlier.
		e.Refused, e.RetryAfter = true, time.Duration(retryAfter(r.Decision.RetryAfter(r.Match.Checks)))*time.Second
	} else {
		e.Fingerprint, e.LacksHeaders, e.Login = k.print, k.lacks, k.login
	}
	client := c.Clients.Observe(k.client, now, &e)
	c.rose(r, KindClient, c.Clients, k.client, client, now, false)
	if k.Policy.Routes != nil && v == Pass {
		c.rose(r, KindRoute, c.Routes, k.route, c.Routes.ObserveRoute(k.route, now, status, client), now, false)
	}
}

func (c *Behavior) rose(r *Request, kind string, table *behavior.Table, key uint64, st behavior.Status, now time.Time, shared bool) {
	if tiers := r.BehaviorResult.Policy.Effects; st.Rose && st.Tier < len(tiers) {
		c.Rose(r, &Rise{Kind: kind, Tier: tiers[st.Tier].Name, Score: st.Score, Reasons: table.Reasons(key, now, nil), Shared: shared})
	}
}

// print hashes what repeated requests have in common: method, path, names in the query, and
// the headers of the policy.
func (c *Behavior) print(r *Request) uint64 {
	b := append(r.buf[:0], r.Method...)
	b = strconv.AppendUint(append(b, ' '), r.BehaviorResult.route, 36)
	name := true
	for _, char := range r.Query {
		switch {
		case char == '&':
			name = true
			b = append(b, '&')
		case char == '=':
			name = false
		case name:
			b = append(b, char)
		}
	}
	for _, header := range r.BehaviorResult.Policy.Fingerprint {
		for _, value := range r.Fields.Header(header) {
			b = append(append(b, '\n'), value...)
		}
	}
	r.buf = b
	return c.names.Load().hash(b)
}

// lacks reports whether a header that real clients always send is absent, or whether a
// trusted proxy saw a handshake that no real client makes.
func lacks(r *Request) bool {
	for _, header := range r.BehaviorResult.Policy.Presence {
		if len(r.Fields.Header(header)) == 0 {
			return true
		}
	}
	return r.BehaviorResult.Policy.TLS != "" && r.Trusted && r.BehaviorResult.Policy.Strange(r.Fields.Header(r.BehaviorResult.Policy.TLS)...)
}

// AppendRisk appends what the origin is told, as in
// suspicious;score=62;signals=scan,denials, or nothing if the tier says so.
func (c *Behavior) AppendRisk(dst []byte, r *Request) []byte {
	k := &r.BehaviorResult
	if k.Policy == nil || k.Policy.Shadow || !k.Policy.Effects[k.Tier].Header {
		return dst
	}
	dst = append(append(dst, k.Name()...), ";score="...)
	dst = strconv.AppendInt(dst, int64(k.Score), 10)
	var few [len(behavior.Signals)]behavior.Reason
	for i, reason := range c.Clients.Reasons(k.client, r.Began, few[:0]) {
		if i == 0 {
			dst = append(dst, ";signals="...)
		} else {
			dst = append(dst, ',')
		}
		dst = append(dst, reason.Signal.String()...)
	}
	return dst
}

// Explain returns the standing of the client of a described request, and why; false if
// there is no policy, or it exempts the request.
func (c *Behavior) Explain(r *Request, now time.Time) (st behavior.Status, reasons []behavior.Reason, judged bool) {
	if !c.evaluates(r) {
		return st, nil, false
	}
	key := c.clientOf(c.Policy(), r)
	return c.Clients.Status(key, now), c.Clients.Reasons(key, now, nil), true
}

// ExplainRoute is Explain of the request's route.
func (c *Behavior) ExplainRoute(r *Request, now time.Time) (st behavior.Status, reasons []behavior.Reason, judged bool) {
	if !c.evaluates(r) || c.Policy().Routes == nil {
		return st, nil, false
	}
	key := c.routeOf(r)
	return c.Routes.Status(key, now), c.Routes.Reasons(key, now, nil), true
}

func (c *Behavior) evaluates(r *Request) bool {
	r.path = r.Paths.At(0)
	p := c.Policy()
	return p != nil && !p.Exempts(view{r}, &rules.Match{})
}

// misbehaved answers 429 until the client's tier admits it again.
func (r *Request) misbehaved() Refusal {
	r.buf = append(r.buf[:0], `{"type":"about:blank","title":"Refused because of earlier requests","status":429}`...)
	return Refusal{Status: http.StatusTooManyRequests, RetryAfter: retryAfter(r.BehaviorResult.wait), Body: r.buf}
}
