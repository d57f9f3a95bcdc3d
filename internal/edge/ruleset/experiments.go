package ruleset

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weir-edge/weir/internal/adminapi"
	"github.com/weir-edge/weir/internal/edge/decide"
	"github.com/weir-edge/weir/internal/experiment"
	"github.com/weir-edge/weir/pkg/limiter"
	"github.com/weir-edge/weir/pkg/limiter/rules"
)

// talliesOf returns the counters for the experiments of a set, by rule index; nil without
// any. Unchanged experiments keep theirs.
func talliesOf(set *rules.Set, before *Running, now time.Time) (list []*experiment.Tally) {
	for _, c := range set.Rules() {
		if c.Trial == nil {
			continue
		}
		if list == nil {
			list = make([]*experiment.Tally, len(set.Rules()))
		}
		if t := before.Tally(c.ID); t != nil && t.Trial.Version == c.Trial.Version {
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
	for _, p := range r.Match.Placed {
		if p.Check >= len(r.Decision.Results) {
			return // the decision failed
		}
		res, c := &r.Decision.Results[p.Check], &r.Match.Checks[p.Check]
		rule := r.Match.Rules[p.Check]
		if res.Source == limiter.SourceNone || res.Allowed && !res.Failed && !r.Decision.Allowed {
			continue // not asked, or not charged because another rule refused
		}
		if res.Source == limiter.SourceDenied && rule.Base().Trial.Beside {
			continue // a variant that runs alongside the rule is not evaluated then, so this does not count here either
		}
		check := experiment.Check{
			Hash: p.Hash, Key: c.Key, Cost: c.Cost, At: r.Began, Failed: res.Failed, Passed: res.Allowed, Wait: res.RetryAfter, Took: -1,
		}
		if asked := r.Asked(); res.Source != limiter.SourceDenied && !asked.IsZero() {
			check.Took = took - asked.Sub(r.Began)
		}
		s.tallies[rule.Index].Decided(p.Slice, &check)
	}
}

// Answered counts the answer to a request that passed, for the experiments that it is part of.
func (s *Running) Answered(r *decide.Request, failed bool) {
	for _, p := range r.Match.Placed {
		s.tallies[r.Match.Rules[p.Check].Index].Answered(p.Slice, r.Began, failed)
	}
}

// experimentMetrics exports what experiments count, by variant.
type experimentMetrics struct{ rules func() *Running }

var (
	experimentChecks  = prometheus.NewDesc("weir_experiment_checks_total", "Checks under rules with an experiment, by variant and outcome.", []string{"rule", "variant", "outcome"}, nil)
	experimentWait    = prometheus.NewDesc("weir_experiment_wait_seconds_total", "Time that clients refused by a variant were told to wait.", []string{"rule", "variant"}, nil)
	experimentTime    = prometheus.NewDesc("weir_experiment_decision_seconds_total", "Duration of decisions that the memory of refusals could not make, by variant.", []string{"rule", "variant"}, nil)
	experimentAnswers = prometheus.NewDesc("weir_experiment_answers_total", "Answers of upstreams to requests that passed, by variant; error: 5xx, or no answer.", []string{"rule", "variant", "outcome"}, nil)
	experimentWorst   = prometheus.NewDesc("weir_experiment_worst_window", "The most that one key passed at this node in any window, of the keys that were followed.", []string{"rule", "variant"}, nil)
)

// Describe implements prometheus.Collector.
func (experimentMetrics) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{experimentChecks, experimentWait, experimentTime, experimentAnswers, experimentWorst} {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (m experimentMetrics) Collect(to chan<- prometheus.Metric) {
	running := m.rules()
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
			count := func(d *prometheus.Desc, v float64, labels ...string) {
				to <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, v, append([]string{rule, variant}, labels...)...)
			}
			count(experimentChecks, float64(n.Checks-n.Refused), outcomeNames[outcomeAllowed])
			count(experimentChecks, float64(n.Refused), outcomeNames[outcomeLimited])
			count(experimentChecks, float64(n.Failed), outcomeNames[outcomeError])
			count(experimentWait, float64(n.WaitMicros)/1e6)
			count(experimentTime, float64(n.TookMicros)/1e6)
			count(experimentAnswers, float64(n.Answers-n.Errors), "ok")
			count(experimentAnswers, float64(n.Errors), "error")
			to <- prometheus.MustNewConstMetric(experimentWorst, prometheus.GaugeValue, float64(n.Worst), rule, variant)
		}
	}
}
