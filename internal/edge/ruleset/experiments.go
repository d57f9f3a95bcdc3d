package ruleset

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weir-edge/weir/internal/adminapi"
	"github.com/weir-edge/weir/internal/edge/decide"
	"github.com/weir-edge/weir/internal/experiment"
	"github.com/weir-edge/weir/internal/metric"
	"github.com/weir-edge/weir/pkg/limiter"
	"github.com/weir-edge/weir/pkg/limiter/rules"
)

// talliesOf returns the counters for the experiments of a set, by rule index; nil without
// any. Unchanged experiments keep theirs.
func talliesOf(set *rules.Set, before *Running, now time.Time) (list []*experiment.Tally) {
	for _, c := range set.Rules() {
		if c.Experiment == nil {
			continue
		}
		if list == nil {
			list = make([]*experiment.Tally, len(set.Rules()))
		}
		if t := before.Tally(c.ID); t != nil && t.Trial.Version == c.Experiment.Version {
			list[c.Index] = t
			continue
		}
		list[c.Index] = experiment.NewTally(c, now)
	}
	return list
}

// Tally returns the counters for the experiment of a rule, or nil.
func (s *Running) Tally(id string) *experiment.Tally {
	if s == nil || s.tallies == nil {
		return nil
	}
	c, ok := s.set.Rule(id)
	if !ok {
		return nil
	}
	return s.tallies[c.Index]
}

// countTried counts the checks of a decision that are part of experiments.
func (s *Running) countTried(r *decide.Request, took time.Duration) {
	for _, p := range r.Match.InExperiments {
		if p.Check >= len(r.Decision.Results) {
			return // the decision failed
		}
		res, c := &r.Decision.Results[p.Check], &r.Match.Checks[p.Check]
		rule := r.Match.Rules[p.Check]
		if res.Source == limiter.SourceNone || res.Allowed && !res.Failed && !r.Decision.Allowed {
			continue // not asked, or not charged because another rule refused
		}
		if res.Source == limiter.SourceDenied && rule.Base().Experiment.Beside {
			continue // a variant that runs alongside the rule is not evaluated then, so this does not count here either
		}
		check := experiment.Check{
			Hash: p.Hash, Key: c.Key, Cost: c.Cost, At: r.Began, Failed: res.Failed, Passed: res.Allowed, Wait: res.RetryAfter, Took: -1,
		}
		if sent := r.StoreCalledAt(); res.Source != limiter.SourceDenied && !sent.IsZero() {
			check.Took = took - sent.Sub(r.Began)
		}
		s.tallies[rule.Index].Decided(p.Slice, &check)
	}
}

// Answered counts the answer to a request that passed, for the experiments that it is part of.
func (s *Running) Answered(r *decide.Request, failed bool) {
	for _, p := range r.Match.InExperiments {
		s.tallies[r.Match.Rules[p.Check].Index].Answered(p.Slice, r.Began, failed)
	}
}

var (
	experimentChecks  = metric.ReadCounter("weir_experiment_checks_total", "Checks under rules with an experiment, by variant (base, experiment) and outcome (allowed, limited, error). limited includes a shadow variant's, which weir_decisions_total leaves out.", "rule", "variant", "outcome")
	experimentWait    = metric.ReadCounter("weir_experiment_wait_seconds_total", "Sum of the Retry-After of all refusals, in seconds, by variant.", "rule", "variant")
	experimentTime    = metric.ReadCounter("weir_experiment_decision_seconds_total", "Time spent on decisions, except remembered refusals, in seconds, by variant.", "rule", "variant")
	experimentAnswers = metric.ReadCounter("weir_experiment_answers_total", "Answers to requests that passed, by variant and outcome: ok, or error (5xx, including weir's own for an origin that does not answer).", "rule", "variant", "outcome")
	experimentWorst   = metric.ReadGauge("weir_experiment_worst_window", "The most that any tracked key passed at this node in one window, by variant.", "rule", "variant")
)

// collectExperiments exports what experiments count, by variant.
func (a *Active) collectExperiments(to chan<- prometheus.Metric) {
	running := a.Running()
	if running == nil {
		return
	}
	for i, t := range running.tallies {
		if t == nil {
			continue
		}
		rule, counts := running.set.Rules()[i].ID, t.Counts()
		for _, variant := range []string{adminapi.VariantBase, adminapi.VariantExperiment} {
			n := experiment.Sum(counts, t.Trial.Cut, variant == adminapi.VariantExperiment)
			experimentChecks.Send(to, float64(n.Checks-n.Refused), rule, variant, outcomeNames[outcomeAllowed])
			experimentChecks.Send(to, float64(n.Refused), rule, variant, outcomeNames[outcomeLimited])
			experimentChecks.Send(to, float64(n.Failed), rule, variant, outcomeNames[outcomeError])
			experimentWait.Send(to, float64(n.WaitMicros)/1e6, rule, variant)
			experimentTime.Send(to, float64(n.TookMicros)/1e6, rule, variant)
			experimentAnswers.Send(to, float64(n.Answers-n.Errors), rule, variant, "ok")
			experimentAnswers.Send(to, float64(n.Errors), rule, variant, "error")
			experimentWorst.Send(to, float64(n.Worst), rule, variant)
		}
	}
}
