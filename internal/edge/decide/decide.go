// Package decide decides whether a request passes: it identifies the client, finds the
// rules that apply, and asks the shedder and the store. It works on plain values, so that
// every protocol enters here with the same result.
package decide

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"time"

	"github.com/weir-edge/weir/internal/clientlist"
	"github.com/weir-edge/weir/internal/shedding"
	"github.com/weir-edge/weir/pkg/limiter"
	"github.com/weir-edge/weir/pkg/limiter/rules"
	"github.com/weir-edge/weir/pkg/paths"
	"github.com/weir-edge/weir/pkg/shedder"
)

// Decider decides which requests pass. Its fields are set before the first one.
type Decider struct {
	Log        *slog.Logger
	Trusted    []netip.Prefix // proxies
	TierHeader string         // the header in which a trusted proxy states the tier; "" if none
	Strict     bool           // refuse a path that can be read in several ways

	Rules    func() Rules // the active ones; nil until there are any
	Shedding func() *Shedding
	Routes   Routes
	Shedders []*shedder.Shedder // by upstream group; nil: nothing is shed, and Shedding, Secret and Shed are not called
	Secret   func() *Secret     // hides who is shed
	// Precheck refuses what is known to be refused, before the shedder is asked; Take decides the
	// rest.
	Precheck limiter.Prechecker
	Take     limiter.Taker
	// Peek decides as Take does, for a described request, and charges nothing.
	Peek interface {
		Peek(ctx context.Context, checks []limiter.Check, d *limiter.Decision) error
	}
	// Shed is called with each request that was shed.
	Shed func(*Request, shedder.Reason)
	// ClientLists are the clients that operators block or allow; nil if there are none.
	ClientLists func() *clientlist.Table
	// Blocked is called with each request whose client is blocked.
	Blocked func(*Request)
	// Behavior judges clients by their behavior; nil without a policy.
	Behavior *Behavior
	// UnderLoad lowers limits while upstreams are busy; nil if none follow load.
	UnderLoad *UnderLoad
	// Decided is called with each decided request; may be nil.
	Decided func(*Request, Verdict)
}

// Rules are a set of rules that also counts its decisions.
type Rules interface {
	Set() *rules.Set
	// Decided is called once the checks of a request have been decided.
	Decided(*Request)
}

// Shedding is the shedder's settings, with what a request needs of them.
type Shedding struct {
	Document *shedding.Document
	Classes  *shedding.Matcher
	User     []rules.KeyPart
}

// Routes choose the upstream group of a request: the first whose condition holds.
type Routes struct {
	Conditions *rules.Matcher
	Groups     []int // by condition
	Default    int
}

func (t *Routes) find(match *rules.Match) int {
	if len(t.Groups) > 0 {
		if found := t.Conditions.FindAgain(match); len(found) > 0 {
			return t.Groups[found[0]]
		}
	}
	return t.Default
}

// Verdict is what happens to a request.
type Verdict uint8

// The verdicts. Refuse has the answer for all but Pass.
const (
	Pass        Verdict = iota
	NoRules             // there have never been any rules, and requests need some to pass
	Malformed           // the origin might read the request differently: see Request.Err
	Limited             // see Request.Decision
	Shed                // see Request.Permit
	Uncountable         // a rule limits concurrency, but the request's end will be unknown: see Request.Err
	Misbehaved          // see Request.BehaviorResult
	Blocked             // see Request.ListEntry
)

// Decide decides whether a request passes.
func (d *Decider) Decide(r *Request) Verdict {
	v := d.decide(r)
	if d.Decided != nil && !r.DryRun {
		d.Decided(r, v)
	}
	return v
}

// decide lists the steps of a decision in order.
func (d *Decider) decide(r *Request) Verdict {
	if r.Rules == nil {
		return NoRules
	}
	d.identify(r)
	r.slotID = rand.Uint64()
	if d.LookUpClient(r); r.ListEntry != nil && r.ListEntry.Action == clientlist.Block && !r.DryRun {
		return Blocked
	}
	if d.EvaluatesBehavior(r) {
		d.Behavior.Classify(r)
	}
	if r.Err = d.FindChecks(r); r.Err != nil {
		return Malformed
	}
	if r.CompletionUnknown {
		if r.Err = r.holdNoSlots(); r.Err != nil {
			return Uncountable
		}
	}
	d.Lower(r)
	if d.Behavior != nil && !d.Behavior.enforce(r) {
		return Misbehaved
	}
	if r.DryRun {
		return d.peek(r)
	}
	if d.precheck(r) {
		d.want(r)
		return Limited
	}
	if d.Shedders != nil && !d.admit(r) {
		return Shed
	}
	if len(r.Match.Checks) > 0 && !d.take(r) {
		d.want(r)
		return Limited
	}
	return Pass
}

// LookUpClient looks up what operators decided about the client of a request.
func (d *Decider) LookUpClient(r *Request) {
	if d.ClientLists != nil {
		r.ListEntry = d.ClientLists().Find(r.Client)
	}
}

// EvaluatesBehavior reports whether the client's behavior matters; it does not if operators allow the
// client.
func (d *Decider) EvaluatesBehavior(r *Request) bool { return d.Behavior != nil && r.ListEntry == nil }

// Check decides a request whose checks the caller found. It never sheds, because such a
// request goes to no upstream of this node.
func (d *Decider) Check(r *Request) Verdict {
	if len(r.Match.Checks) == 0 {
		r.Decision.Reset(0)
		r.Decision.Allowed = true
		return Pass
	}
	if r.DryRun {
		return d.peek(r)
	}
	if d.precheck(r) || !d.take(r) {
		return Limited
	}
	return Pass
}

// peek decides about the checks of a described request, without charging them. If the store does
// not answer, Err says why.
func (d *Decider) peek(r *Request) Verdict {
	if d.Shedders != nil && r.Paths.Len() > 0 {
		r.Upstream = d.Routes.find(&r.Match)
	}
	for i := range r.Match.Checks {
		r.Costs = append(r.Costs, r.Match.Checks[i].Cost)
	}
	r.tighten()
	if r.Err = d.Peek.Peek(context.Background(), r.Match.Checks, &r.Decision); r.Err != nil || !r.Decision.Allowed {
		return Limited
	}
	return Pass
}

var (
	errAmbiguous = errors.New("the path can be read in several ways" + paths.Plainly)
	errDisagree  = errors.New("the path can be read in several ways that are not limited and routed alike" + paths.Plainly)
)

// ReadPath finds the readings of a request's path, as it is forwarded.
func (d *Decider) ReadPath(r *Request, path []byte) error {
	if err := r.Paths.Read(path); err != nil {
		return err
	}
	r.ForwardedPath = path
	if d.Strict && r.Paths.Len() > 1 {
		return errAmbiguous
	}
	return nil
}

// FindChecks finds the checks for every reading of the path. It fails if the readings
// differ in their checks, upstream group or class.
func (d *Decider) FindChecks(r *Request) error {
	set, a := r.Rules.Set(), view{r}
	r.path = r.Paths.At(0)
	if err := set.Match(a, r.slotID, &r.Match); err != nil || r.Paths.Len() == 1 {
		return err
	}
	var s *Shedding // the same for all readings
	if d.Shedders != nil {
		s = d.Shedding()
	}
	upstream, class := d.destination(r, &r.Match, s)
	for i := 1; i < r.Paths.Len(); i++ {
		r.path = r.Paths.At(i)
		if err := set.Match(a, r.slotID, &r.other); err != nil {
			return err
		}
		if u, c := d.destination(r, &r.other, s); u != upstream || c != class || !r.Match.SameChecks(&r.other) {
			return errDisagree
		}
	}
	r.path = r.Paths.At(0)
	return nil
}

func (d *Decider) destination(r *Request, match *rules.Match, s *Shedding) (upstream, class int) {
	if s == nil {
		return 0, 0
	}
	return d.Routes.find(match), s.Classes.Class(view{r}, match)
}

// Class returns the name of the class of a request whose checks were found.
func (d *Decider) Class(r *Request) string {
	s := d.Shedding()
	return s.Document.Classes[s.Classes.Class(view{r}, &r.Match)].Name
}

// holdNoSlots reports a rule that limits concurrency. A shadow rule must not change the
// answer, so it is skipped.
func (r *Request) holdNoSlots() error {
	shadows := false
	for i := range r.Match.Checks {
		if l := r.Match.Checks[i].Limit; l.Algorithm == limiter.Concurrency {
			if !l.Shadow {
				return fmt.Errorf("rule %s limits concurrent requests, and the gateway does not say when a request ends; limit its rate instead, or let its requests pass through this node", l.Rule)
			}
			shadows = true
		}
	}
	if shadows {
		r.Match.Keep(func(i int) bool { return r.Match.Checks[i].Limit.Algorithm != limiter.Concurrency })
	}
	return nil
}

// precheck decides what needs no I/O: whether a check is known to be refused. A flood of
// refused requests must not cost the store or the shedder anything.
func (d *Decider) precheck(r *Request) bool {
	r.prechecked = d.Precheck.Precheck(r.Match.Checks, &r.Decision, r.now())
	if r.prechecked.Refused {
		r.Rules.Decided(r)
	}
	return r.prechecked.Refused
}

// now returns a recent reading of the clock. The time at which the request began is recent
// enough, except after a delay, or where an experiment times the store: reading the clock
// costs as much as the rest of looking a refusal up.
func (r *Request) now() time.Time {
	if r.Began.IsZero() || r.BehaviorResult.Effect == DelayedFor || len(r.Match.InExperiments) > 0 {
		return time.Now()
	}
	return r.Began
}

// admit asks the shedder of the upstream group for a permit. The class is an index in the
// settings that were loaded here; if others are activated at this moment, one request
// may count as another class.
func (d *Decider) admit(r *Request) bool {
	r.Upstream = d.Routes.find(&r.Match)
	s := d.Shedding()
	class := s.Classes.Class(view{r}, &r.Match)
	secret, sheds := d.Secret(), d.Shedders[r.Upstream]
	client := r.user(nil, secret)
	user := client
	if len(s.User) > 0 && s.User[0].Kind != rules.ByClient {
		user = r.user(s.User, secret)
	}
	var admitted bool
	if r.Trusted && d.Trusts(r.Client) { // a proxy that names no client: it speaks for many
		r.Permit, admitted = sheds.Admit(class, user)
	} else {
		r.Permit, admitted = sheds.AdmitFrom(class, user, client)
	}
	return admitted
}

// user hashes the first of these parts that the request has, or else its address: without
// either, all such users would be shed at once. The hash is the same on every node, so that
// a user who is shed here fares no better elsewhere.
func (r *Request) user(known []rules.KeyPart, secret *Secret) uint64 {
	b := r.buf[:0]
	for i := range known {
		if b = known[i].Append(b, view{r}); len(b) > 0 {
			break
		}
	}
	if len(b) == 0 {
		b = rules.KeyPart{Kind: rules.ByClient}.Append(b, view{r})
	}
	r.buf = b
	return secret.hash(b)
}

// take asks the store; it reports whether the request passes.
func (d *Decider) take(r *Request) bool {
	// Bounded by the store's own time budget. The request's context cannot be used: it may
	// be recycled while a late answer still reads it.
	err := d.Take.TakeAfter(context.Background(), r.Match.Checks, &r.Decision, r.prechecked)
	if err != nil { // no layer returns one, but a limiter must not fail open by accident
		d.Log.Error("decide", "error", err)
		r.Decision.Reset(len(r.Match.Checks))
		r.Decision.StoreUnavailable = true
	}
	r.Rules.Decided(r)
	return r.Decision.Allowed
}
