package edge

import (
	"log/slog"
	"math"
	"sync/atomic"
	"time"

	"github.com/weir-edge/weir/internal/adminapi"
	"github.com/weir-edge/weir/internal/edge/decide"
	"github.com/weir-edge/weir/internal/edge/documents"
	"github.com/weir-edge/weir/internal/experiment"
	"github.com/weir-edge/weir/internal/logs"
	"github.com/weir-edge/weir/pkg/limiter"
	"github.com/weir-edge/weir/pkg/limiter/rules"
	"github.com/weir-edge/weir/pkg/region/consul"
)

// activeRules are the rules in force, and what counts under them.
type activeRules struct {
	*documents.Keeper[rules.Set]
	log     *slog.Logger
	metrics *metrics
	running atomic.Pointer[ruleset]               // nil until there are rules
	alone   bool                                  // other regions cannot be reached
	keep    func(holds func(*limiter.Limit) bool) // for the memory of refusals; nil without one
}

// openRules activates the first rules: builtin, if not empty, those of a file, which must be
// good, or the cached ones of Consul, which may name some later.
func (e *Edge) openRules(builtin string) (err error) {
	c := &e.config.Rules
	a := &activeRules{log: e.log, metrics: e.metrics, alone: e.config.Listen.Peer == nil}
	e.rules = a
	config := documents.Config[rules.Set]{
		Kind:     documents.Kind[rules.Set]{Name: "rules", What: "rules", Compile: a.compile, CanaryOf: e.config.Node.PoP, Verify: e.config.Verify()},
		Activate: a.activate, Published: a.published,
		Metrics: documents.Metrics{
			Rejected: e.metrics.rulesRejected, CacheErrors: e.metrics.cacheErrors, SourceUp: e.metrics.sourceUp,
			Unsigned: e.metrics.documentsUnsigned.WithLabelValues("rules"),
		},
	}
	switch {
	case builtin != "":
		config.Source, config.Read = adminapi.SourceBuiltin, func() ([]byte, error) { return []byte(builtin), nil }
	case !e.config.FollowsConsul():
		config.Source, config.Read = adminapi.SourceFile, c.Read
	default:
		if err := e.openConsul(); err != nil {
			return err
		}
		if c.Bootstrap != "" {
			config.Bootstrap = c.Fetch
		}
		if !c.Required {
			set, err := rules.Compile(&rules.Document{Rules: []rules.Rule{}})
			if err != nil {
				return err
			}
			config.Otherwise = documents.Local(adminapi.NoVersion, set, "")
		}
	}
	if a.Keeper, err = openDocument(e, config, e.consul, c.Cache); err != nil || !a.none() {
		return err
	}
	if c.Required {
		e.log.Warn("no rules yet, requests get 503 until consul names some")
	} else {
		e.log.Warn("no rules yet, every request passes until consul names some (rules.required is false)")
	}
	return nil
}

// openDocument opens the keeper of a kind. client is nil unless Consul is followed.
func openDocument[T any](e *Edge, c documents.Config[T], client *consul.Client, cache string) (*documents.Keeper[T], error) {
	c.Log, c.Changed = e.log, e.changed
	c.Consul, c.Cache, c.Owner = client, cache, e.config.CacheOwner()
	return documents.New(c)
}

// rules returns the active rules, for requests.
func (a *activeRules) rules() decide.Rules {
	if running := a.running.Load(); running != nil {
		return running
	}
	return nil
}

// ruleset is the active rules with their counters, swapped as one.
type ruleset struct {
	of       *activeRules
	set      *rules.Set
	version  string
	counters []ruleCounters // by rule index
	samplers []logs.Sampler // by rule index

	tallies []*experiment.Tally // by rule index; nil for a rule without an experiment
}

// Set implements decide.Rules.
func (s *ruleset) Set() *rules.Set { return s.set }

var _ decide.Rules = (*ruleset)(nil)

// activate swaps the rules. Requests in progress finish with the rules they began with.
func (a *activeRules) activate(d *documents.Document[rules.Set], canary bool) error {
	set, n, before := d.Made, len(d.Made.Rules()), a.running.Load()
	next := &ruleset{
		of: a, set: set, version: d.Pointer.Version, counters: make([]ruleCounters, n), samplers: make([]logs.Sampler, n),
		tallies: talliesOf(set, before, time.Now()),
	}
	a.running.Store(next)
	a.metrics.running(next, before)
	if a.keep != nil {
		a.keep(set.Holds)
	}
	if next.version == adminapi.NoVersion {
		return nil
	}
	a.log.Info("rules active", "version", next.version, "rules", n, "source", d.Source, "canary", canary)
	if list := globalRules(set); a.alone && len(list) > 0 {
		a.log.Warn("rules with scope: global apply to this region only; set listen.peer on every node", "rules", list)
	}
	return nil
}

// published shows operators a state.
func (a *activeRules) published(_, s *documents.State[rules.Set]) {
	apart := 0.0 // until when the rules differ from other nodes' on purpose, in seconds since 1970
	if !s.Stale && s.Pointer != nil {
		if until := s.Pointer.Apart(s.Canary); !until.IsZero() {
			apart = float64(until.Unix())
		}
	}
	a.metrics.rulesApart.Set(apart)
	a.metrics.rulesStale.Set(oneIf(s.Stale))
	a.metrics.rulesBootstrapped.Set(oneIf(s.Source() == adminapi.SourceBootstrap))
}

// none reports whether there have never been any rules.
func (a *activeRules) none() bool { return a.State().Version() == adminapi.NoVersion }

// age returns for how many seconds the running rules have been active.
func (a *activeRules) age() float64 {
	if a.none() {
		return math.NaN()
	}
	return time.Since(a.State().Since).Seconds()
}
