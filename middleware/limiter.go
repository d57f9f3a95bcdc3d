//lint:file-ignore ST1005 an error begins with the name of the field of Config

// Package middleware limits the requests of a Go program by weir's rules. It runs inside the
// program and needs neither a proxy nor an edge node.
//
//	limiter, err := middleware.New(middleware.Config{Rules: rules})
//	if err != nil {
//		log.Fatal(err)
//	}
//	http.ListenAndServe(":8080", limiter.Handler(mux))
//
// Rules are those of weir's edges, described in docs/RULES.md of the module
// github.com/weir-edge/weir: six algorithms, keys of addresses, headers, cookies and more, tiers,
// shadow mode, and a policy for each rule while Redis is unreachable. Programs and edges
// that share a Redis and have rules with the same ids count together.
//
// A request that a rule refuses gets 429 with Retry-After, the RateLimit fields and a problem
// document (RFC 9457). An ambiguous request gets 400. Answers to requests that pass have the
// RateLimit fields, too. Only edges have the load shedder, so nothing is shed here.
//
// [Limiter.Handler] is for net/http. Packages fasthttpweir and grpcweir do the same for fasthttp and gRPC,
// and [Limiter.Begin] serves any other protocol.
//
// # Stability
//
// This module follows semantic versioning. Before 1.0 a minor version may change what is exported, and CHANGELOG.md
// says so. Use the same version as the edges that share its Redis, and only what the packages of this module export:
// types of other modules appear only in [Config].
package middleware

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"sync/atomic"

	"github.com/weir-edge/weir/internal/edge/chain"
	"github.com/weir-edge/weir/internal/edge/decide"
	"github.com/weir-edge/weir/pkg/limiter"
	"github.com/weir-edge/weir/pkg/limiter/redisstore"
	"github.com/weir-edge/weir/pkg/limiter/rules"
)

// Config configures a Limiter. Only Rules is required.
type Config struct {
	// Rules is a rule document, YAML or JSON.
	Rules []byte
	// Redis keeps the counts of all processes that share it. If nil, this process counts alone, in memory.
	Redis *redisstore.Config
	// Processes is how many processes share the limits: while Redis is unreachable, each allows that part of a
	// limit whose rule says on_store_failure: local. 0 means 1.
	Processes int
	// TrustedProxies are addresses and networks of proxies that may name the client in
	// X-Forwarded-For. By default the client is the other end of the connection.
	TrustedProxies []string
	// TierHeader is the header in which a trusted proxy states the tier; "" if none does.
	TierHeader string
	// StrictPaths refuses each request whose path can be read in several ways, not only those whose readings are limited differently.
	StrictPaths bool
	// LegacyHeaders adds X-RateLimit-Limit, -Remaining and -Reset.
	LegacyHeaders bool
	// Log receives what an operator should know; nil means slog.Default.
	Log *slog.Logger
	// Decided, if not nil, is called with the rules that refused a request, or would have in
	// shadow mode, and must not block. Both are nil for most requests.
	Decided func(refused, shadow []string)
}

// Limiter decides requests. All methods are safe for concurrent use.
type Limiter struct {
	config  Config
	decider decide.Decider
	active  atomic.Pointer[active]
	chain   *chain.Chain
	calls   sync.Pool

	mu      sync.Mutex
	closed  bool
	returns sync.WaitGroup // of slots; nothing is added once closed
}

// active are the rules in use.
type active struct {
	set     *rules.Set
	limiter *Limiter
}

// Set implements decide.Rules.
func (a *active) Set() *rules.Set { return a.set }

// Decided implements decide.Rules.
func (a *active) Decided(r *decide.Request) {
	if a.limiter.config.Decided == nil {
		return
	}
	var refused, shadow []string
	for i := range r.Decision.Results {
		switch res := &r.Decision.Results[i]; {
		case res.Refuses(&r.Match.Checks[i]):
			refused = append(refused, r.Match.Rules[i].ID)
		case !res.Allowed && res.Source != limiter.SourceNone:
			shadow = append(shadow, r.Match.Rules[i].ID)
		}
	}
	a.limiter.config.Decided(refused, shadow)
}

// deniedMemory is how many refusals are remembered, so that a flood asks Redis only once in a while.
const deniedMemory = 100_000

// New returns a limiter. An unreachable Redis is not an error: each rule decides what happens then.
func New(c Config) (*Limiter, error) {
	if c.Log == nil {
		c.Log = slog.Default()
	}
	l := &Limiter{config: c}
	l.calls.New = func() any { c := &Call{limiter: l}; c.request.Fields = (*given)(c); return c }
	trusted, err := networks(c.TrustedProxies)
	if err != nil {
		return nil, err
	}
	l.decider = decide.Decider{Log: c.Log, Trusted: trusted, TierHeader: c.TierHeader, Strict: c.StrictPaths, Rules: l.rules}
	if err := l.SetRules(c.Rules); err != nil {
		return nil, err
	}
	return l, l.open()
}

func (l *Limiter) rules() decide.Rules { return l.active.Load() }

func networks(list []string) (out []netip.Prefix, err error) {
	for i, text := range list {
		p, err := netip.ParsePrefix(text)
		if a, single := netip.ParseAddr(text); single == nil {
			p, err = netip.PrefixFrom(a, a.BitLen()), nil
		}
		if err != nil {
			return nil, fmt.Errorf("TrustedProxies[%d]: must be an address or a network such as 10.0.0.0/8 (got %q)", i, text)
		}
		out = append(out, p.Masked())
	}
	return out, nil
}

// open builds the layers that decide, as edges do.
func (l *Limiter) open() error {
	config := chain.Config{Redis: l.config.Redis, DeniedMemory: deniedMemory, Nodes: func() int { return max(1, l.config.Processes) }}
	var err error
	if l.chain, err = chain.Build(config); err != nil {
		return fmt.Errorf("Redis: %w", err)
	}
	l.decider.Precheck, l.decider.Take = l.chain.Precheck, l.chain.Take
	return nil
}

// SetRules replaces the rules. If the new ones are invalid, the old rules stay active and the error names each
// fault. Requests in progress finish with the rules that they began with. Rules that do not change keep their counts.
func (l *Limiter) SetRules(document []byte) error {
	if len(document) == 0 {
		return errors.New("Rules: is empty; write rules: [] for no rules")
	}
	set, err := rules.Load(document)
	if err != nil {
		return fmt.Errorf("Rules: %w", err)
	}
	for i, c := range set.Rules() {
		if c.Limit.Global != nil && c.Limit.Global.Escrow && c.Mode != rules.Off {
			return fmt.Errorf("Rules: rules[%d].global.mode: escrow takes an edge, which knows the part of its region; use mode: eventual, or remove scope", i)
		}
	}
	for _, c := range set.Rules() {
		if c.Limit.Global != nil && c.Mode != rules.Off {
			l.config.Log.Warn("the rule counts across regions, which takes an edge: what passes here is not told to other regions", "rule", c.Limit.Rule)
		}
	}
	l.active.Store(&active{set, l})
	if l.chain != nil { // nil while New checks the first rules
		l.chain.ForgetInactive(set.Holds)
	}
	return nil
}

// Close returns concurrency slots and leases, and closes the connections to Redis. Call it once, after the last
// request has ended; slots of requests that end later expire.
func (l *Limiter) Close() {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.returns.Wait()
	l.chain.Close()
}

// returnSlots returns concurrency slots, off the request path.
func (l *Limiter) returnSlots(checks []limiter.Check, results []limiter.Result) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return
	}
	l.returns.Go(func() {
		if err := l.chain.Return.Return(context.Background(), checks, &limiter.Decision{Results: results}); err != nil {
			l.config.Log.Warn("concurrency slot not returned; it expires automatically", "rule", checks[0].Limit.Rule, "error", err)
		}
	})
}
