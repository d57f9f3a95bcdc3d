// Package ruleset has the rules in force: it activates them, counts and logs what they decide,
// and counts their experiments.
package ruleset

import (
	"log/slog"
	"math"
	"sync/atomic"
	"time"

	"github.com/weir-edge/weir/internal/adminapi"
	"github.com/weir-edge/weir/internal/edge/config"
	"github.com/weir-edge/weir/internal/edge/decide"
	"github.com/weir-edge/weir/internal/edge/documents"
	"github.com/weir-edge/weir/internal/experiment"
	"github.com/weir-edge/weir/internal/logs"
	"github.com/weir-edge/weir/internal/metric"
	"github.com/weir-edge/weir/pkg/limiter"
	"github.com/weir-edge/weir/pkg/limiter/rules"
)

// Active keeps the rules in force.
type Active struct {
	*documents.Keeper[rules.Set]
	// ForgetInactive, if not nil, drops what layers know of limits that are no longer active.
	ForgetInactive func(holds func(*limiter.Limit) bool)

	log     *slog.Logger
	metrics *metrics
	running atomic.Pointer[Running] // nil until there are rules
	alone   bool                    // other regions cannot be reached
}

// Open activates the first rules: builtin, if not empty; those of a file, which must be good; or
// the cached ones of Consul, which may name some later.
func Open(node documents.Node, c *config.Config, registry metric.Registry, builtin string) (a *Active, err error) {
	a = &Active{log: node.Log, alone: c.Listen.Peer == nil}
	a.metrics = newMetrics(registry, a.age)
	registry.Collect(a.collectExperiments, experimentChecks, experimentWait, experimentTime, experimentAnswers, experimentWorst)
	document := documents.Config[rules.Set]{
		Kind: documents.Kind[rules.Set]{Name: "rules", What: "rules", Compile: a.compile, CanaryOf: c.Node.PoP, Verify: c.Verify()},
		Node: node, Activate: a.activate, Published: a.published, Cache: c.Rules.Cache,
		Metrics: documents.Metrics{Rejected: a.metrics.rejected, CacheErrors: a.metrics.cacheErrors, SourceUp: a.metrics.sourceUp},
	}
	switch {
	case builtin != "":
		document.Source, document.Read = adminapi.SourceBuiltin, func() ([]byte, error) { return []byte(builtin), nil }
	case node.Consul == nil:
		document.Source, document.Read = adminapi.SourceFile, c.Rules.Read
	default:
		if c.Rules.Bootstrap != "" {
			document.Bootstrap = c.Rules.Fetch
		}
		if !c.Rules.Required {
			none, err := rules.Compile(&rules.Document{Rules: []rules.Rule{}})
			if err != nil {
				return nil, err
			}
			document.Fallback = documents.Local(adminapi.NoVersion, none, "")
		}
	}
	if a.Keeper, err = documents.New(document); err != nil || !a.none() {
		return a, err
	}
	if c.Rules.Required {
		a.log.Warn("no rules yet, requests get 503 until consul names some")
	} else {
		a.log.Warn("no rules yet, every request passes until consul names some (rules.required is false)")
	}
	return a, nil
}

// Rules returns the active rules, for requests.
func (a *Active) Rules() decide.Rules {
	if running := a.running.Load(); running != nil {
		return running
	}
	return nil
}

// Running returns the active rules; nil until there are any.
func (a *Active) Running() *Running { return a.running.Load() }

// Set returns the set that is active; nil until there is one.
func (a *Active) Set() *rules.Set {
	if running := a.running.Load(); running != nil {
		return running.set
	}
	return nil
}

// Running is the active rules with their counters, swapped as one.
type Running struct {
	of       *Active
	set      *rules.Set
	version  string
	counters []ruleCounters // by rule index
	samplers []logs.Sampler // by rule index

	tallies []*experiment.Tally // by rule index; nil for a rule without an experiment
	tops    []topSketch         // by rule index
}

// Set implements decide.Rules.
func (s *Running) Set() *rules.Set { return s.set }

var _ decide.Rules = (*Running)(nil)

// activate swaps the rules. Requests in progress finish with the rules they began with.
func (a *Active) activate(d *documents.Document[rules.Set], canary bool) error {
	set, n, before := d.Compiled, len(d.Compiled.Rules()), a.running.Load()
	next := &Running{
		of: a, set: set, version: d.Pointer.Version, counters: make([]ruleCounters, n), samplers: make([]logs.Sampler, n),
		tallies: talliesOf(set, before, time.Now()), tops: topsOf(set, before),
	}
	a.running.Store(next)
	a.metrics.activated(next, before)
	if a.ForgetInactive != nil {
		a.ForgetInactive(set.Holds)
	}
	if next.version == adminapi.NoVersion {
		return nil
	}
	a.log.Info("rules active", "version", next.version, "rules", n, "source", d.Source, "canary", canary)
	if list := shared(set); a.alone && len(list) > 0 {
		a.log.Warn("rules with scope: global apply to this region only; set listen.peer on every node", "rules", list)
	}
	return nil
}

// published shows operators a state.
func (a *Active) published(_, s *documents.State[rules.Set]) {
	apart := 0.0 // until when the rules differ from other nodes' on purpose, in seconds since 1970
	if !s.Stale && s.Pointer != nil {
		if until := s.Pointer.Apart(s.Canary); !until.IsZero() {
			apart = float64(until.Unix())
		}
	}
	a.metrics.apart.Set(apart)
	a.metrics.stale.Set(metric.OneIf(s.Stale))
	a.metrics.bootstrapped.Set(metric.OneIf(s.Source() == adminapi.SourceBootstrap))
}

// none reports whether there have never been any rules.
func (a *Active) none() bool { return a.State().Version() == adminapi.NoVersion }

// age returns for how many seconds the running rules have been active.
func (a *Active) age() float64 {
	if a.none() {
		return math.NaN()
	}
	return time.Since(a.State().Since).Seconds()
}

// LimitOf returns the active limit of a rule and tier, or nil.
func (a *Active) LimitOf(rule, tier string) *limiter.Limit {
	running := a.Running()
	if running == nil {
		return nil
	}
	c, ok := running.set.Rule(rule)
	switch {
	case !ok:
		return nil
	case tier == "":
		return c.Limit
	}
	return c.Tiers[tier]
}

// Shared reports whether regions share limits.
func (a *Active) Shared() bool {
	running := a.Running()
	return running != nil && len(shared(running.set)) > 0
}

// Divided returns the rules whose limits regions divide.
func (a *Active) Divided() (list []string) {
	running := a.Running()
	if running == nil {
		return nil
	}
	for _, c := range running.set.Rules() {
		if g := c.Limit.Global; g != nil && g.Escrow && c.Mode != rules.Off {
			list = append(list, c.ID)
		}
	}
	return list
}

// shared returns the rules of a set that regions share.
func shared(set *rules.Set) (list []string) {
	for _, c := range set.Rules() {
		if c.Limit.Global != nil && c.Mode != rules.Off {
			list = append(list, c.ID)
		}
	}
	return list
}
