package edge

import (
	"log/slog"
	"maps"
	"math"
	"sync/atomic"
	"time"

	"github.com/weir-edge/weir/internal/adminapi"
	"github.com/weir-edge/weir/internal/edge/decide"
	"github.com/weir-edge/weir/internal/edge/documents"
	"github.com/weir-edge/weir/internal/experiment"
	"github.com/weir-edge/weir/pkg/field"
	"github.com/weir-edge/weir/pkg/limiter"
	"github.com/weir-edge/weir/pkg/limiter/rules"
	"github.com/weir-edge/weir/pkg/region/consul"
)

// ruleKeeper keeps the right rules active: the ones in Consul or in a file.
type ruleKeeper struct {
	log      *slog.Logger
	metrics  *metrics
	running  atomic.Pointer[ruleset] // nil until there are rules
	state    atomic.Pointer[ruleState]
	alone    bool                                  // other regions cannot be reached
	changed  func()                                // tells the registrar to update the registration
	keep     func(holds func(*limiter.Limit) bool) // for the memory of refusals; nil without one
	file     ruleFile
	follower *documents.Follower[rules.Set] // nil unless Consul is followed
}

func newRuleKeeper(log *slog.Logger, changed func()) *ruleKeeper {
	k := &ruleKeeper{log: log, changed: changed}
	k.state.Store(&ruleState{stale: true})
	return k
}

// rules returns the active rules, for requests.
func (k *ruleKeeper) rules() decide.Rules {
	if running := k.running.Load(); running != nil {
		return running
	}
	return nil
}

// ruleset is the active rules with their counters, swapped as one.
type ruleset struct {
	keeper   *ruleKeeper
	set      *rules.Set
	version  string
	since    time.Time
	counters []ruleCounters // by rule index
	samplers []sampler      // by rule index

	tallies []*experiment.Tally // by rule index; nil for a rule without an experiment
}

// Set implements decide.Rules.
func (s *ruleset) Set() *rules.Set { return s.set }

var _ decide.Rules = (*ruleset)(nil)

func (k *ruleKeeper) newRuleset(set *rules.Set, version string) *ruleset {
	n := len(set.Rules())
	return &ruleset{
		keeper: k, set: set, version: version, since: time.Now(), counters: make([]ruleCounters, n), samplers: make([]sampler, n),
		tallies: talliesOf(set, k.running.Load(), time.Now()),
	}
}

// ruleState is what runs and what is known about it, published as one.
type ruleState struct {
	running *ruleset // nil until there are rules
	source  string   // "" until there are rules
	canary  bool
	pointer *consul.Pointer // the one followed; nil if unknown, and without Consul
	refused *adminapi.Refusal
	stale   bool // the running rules differ from the published ones, or those are unknown
}

// version returns the running version, or adminapi.NoVersion.
func (s *ruleState) version() string {
	if s.running == nil {
		return adminapi.NoVersion
	}
	return s.running.version
}

// apart returns until when the running rules differ from other nodes' on purpose, in
// seconds since 1970, or 0.
func (s *ruleState) apart() float64 {
	if s.stale || s.pointer == nil {
		return 0
	}
	if until := s.pointer.Apart(s.canary); !until.IsZero() {
		return float64(until.Unix())
	}
	return 0
}

// none reports whether there have never been any rules.
func (s *ruleState) none() bool { return s.version() == adminapi.NoVersion }

// messages returns the faults of a document one by one.
func messages(err error) []string {
	var out []string
	for _, e := range field.All(err) {
		out = append(out, e.Error())
	}
	return out
}

// enforce swaps the rules. Requests in progress finish with the rules they began with.
func (k *ruleKeeper) enforce(set *rules.Set, source string, canary bool) {
	next := k.newRuleset(set, set.Version())
	before := k.running.Swap(next)
	if k.keep != nil {
		k.keep(set.Holds)
	}
	k.metrics.running(next, before)
	k.log.Info("rules active", "version", next.version, "rules", len(set.Rules()), "source", source, "canary", canary)
	if list := globalRules(set); k.alone && len(list) > 0 {
		k.log.Warn("rules with scope: global apply to this region only; set listen.peer on every node", "rules", list)
	}
}

// unlimited activates a set without rules, for a node that need not wait for any.
func (k *ruleKeeper) unlimited() error {
	set, err := rules.Compile(&rules.Document{Rules: []rules.Rule{}})
	if err != nil {
		return err
	}
	next := k.newRuleset(set, adminapi.NoVersion)
	k.metrics.running(next, k.running.Swap(next))
	return nil
}

// publish makes the current state visible to operators.
func (k *ruleKeeper) publish(s ruleState) {
	s.running = k.running.Load()
	k.metrics.rulesApart.Set(s.apart())
	before := k.state.Swap(&s)
	k.metrics.setStale(s.stale)
	k.metrics.rulesBootstrapped.Set(oneIf(s.source == adminapi.SourceBootstrap))
	if before == nil || !maps.Equal(before.meta(), s.meta()) {
		k.changed()
	}
}

// meta returns the registration's metadata about the rules.
func (s *ruleState) meta() map[string]string {
	return map[string]string{consul.MetaRulesVersion: s.version(), consul.MetaRulesRefused: s.refused.String()}
}

// age returns for how many seconds the running rules have been active.
func (k *ruleKeeper) age() float64 {
	if s := k.state.Load(); !s.none() {
		return time.Since(s.running.since).Seconds()
	}
	return math.NaN()
}
