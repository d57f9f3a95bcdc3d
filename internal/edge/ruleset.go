package edge

import (
	"errors"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/weir-edge/weir/internal/shedding"
	"github.com/weir-edge/weir/pkg/limiter/rules"
	"github.com/weir-edge/weir/pkg/region"
)

// Where the rules in force came from, beside fromFile and fromConsul.
const (
	fromBuiltin = "builtin"
	fromCache   = "cache"
)

// noVersion stands in for the version where there have never been any rules.
const noVersion = "none"

// ruleset is the rules in force with what is counted for them, swapped as one.
type ruleset struct {
	set      *rules.Set
	version  string
	since    time.Time
	counters []ruleCounters // by rule index
	samplers []sampler      // by rule index
}

func newRuleset(set *rules.Set, version string) *ruleset {
	n := len(set.Rules())
	return &ruleset{set: set, version: version, since: time.Now(), counters: make([]ruleCounters, n), samplers: make([]sampler, n)}
}

// ruleState is what runs and what is known beside it, published as one.
type ruleState struct {
	running *ruleset // nil until there are rules
	source  string   // "" until there are rules
	canary  bool
	pointer *region.Pointer // that is followed; nil if unknown, and without Consul
	refused *refusal
	stale   bool // what runs is not what it should be, or that is unknown
}

// version is what runs, in words.
func (s *ruleState) version() string {
	if s.running == nil {
		return noVersion
	}
	return s.running.version
}

// none reports whether there have never been any rules.
func (s *ruleState) none() bool { return s.version() == noVersion }

// refusal is a document, or what should name one, that was not put in force.
type refusal struct {
	At      time.Time `json:"at"`
	Version string    `json:"version"` // "" if none was named
	Canary  bool      `json:"canary,omitempty"`
	Errors  []string  `json:"errors"`
}

// String is what a line has room for.
func (r *refusal) String() string {
	if r == nil {
		return ""
	}
	if r.Version == "" {
		return r.Errors[0]
	}
	return r.Version + ": " + r.Errors[0]
}

// refused notes why a version is not put in force. A refusal that stands already is
// not replaced.
func refused(standing *refusal, version string, canary bool, err error) *refusal {
	why := messages(err)
	if standing != nil && standing.Version == version && slices.Equal(standing.Errors, why) {
		return standing
	}
	return &refusal{At: time.Now().UTC(), Version: version, Canary: canary, Errors: why}
}

// messages are the faults of a document, one by one.
func messages(err error) []string {
	var list rules.Errors
	if !errors.As(err, &list) {
		return shedding.Faults(err)
	}
	var out []string
	for _, e := range list {
		out = append(out, e.Error())
	}
	return out
}

// enforce swaps the rules. Requests under way finish by the ones they began with.
// set must never have been in force before: the memory of refusals knows limits by
// their address, and would believe again what it learned before others counted.
func (e *Edge) enforce(set *rules.Set, source string, canary bool) {
	next := newRuleset(set, set.Version())
	before := e.running.Swap(next)
	e.metrics.running(next, before)
	e.log.Info("rules in force", "version", next.version, "rules", len(set.Rules()), "source", source, "canary", canary)
}

// unlimited puts a set without rules in force, for a node that need not wait for
// rules.
func (e *Edge) unlimited() error {
	set, err := rules.Compile(&rules.Document{Rules: []rules.Rule{}})
	if err != nil {
		return err
	}
	next := newRuleset(set, noVersion)
	e.metrics.running(next, e.running.Swap(next))
	return nil
}

// publish shows operators what runs now and what is known beside it.
func (e *Edge) publish(s ruleState) {
	s.running = e.running.Load()
	before := e.state.Swap(&s)
	e.metrics.setStale(s.stale)
	if before == nil || !maps.Equal(before.meta(), s.meta()) {
		e.changed()
	}
}

// changed has the node's registration brought up to date.
func (e *Edge) changed() {
	select { // one waiting signal tells of all changes
	case e.stateChanged <- struct{}{}:
	default:
	}
}

// meta is what the node's registration says of its rules.
func (s *ruleState) meta() map[string]string {
	return map[string]string{"rules_version": s.version(), "rules_refused": s.refused.String()}
}

// rulesAge is for how many seconds the running rules have been in force.
func (e *Edge) rulesAge() float64 {
	if s := e.state.Load(); !s.none() {
		return time.Since(s.running.since).Seconds()
	}
	return math.NaN()
}
