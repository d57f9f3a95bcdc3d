package edge

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
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
func talliesOf(set *rules.Set, before *ruleset, now time.Time) (list []*experiment.Tally) {
	for _, c := range set.Rules() {
		if c.Trial == nil {
			continue
		}
		if list == nil {
			list = make([]*experiment.Tally, len(set.Rules()))
		}
		if t := before.tally(c.ID); t != nil && t.Trial.Version == c.Trial.Version {
			list[c.Index] = t
			continue
		}
		list[c.Index] = experiment.NewTally(c, now)
	}
	return list
}

// tally returns the counters for the experiment of a rule, or nil.
func (s *ruleset) tally(id string) *experiment.Tally {
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
func (s *ruleset) countTried(r *decide.Request, took time.Duration) {
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

// answeredTried counts the answer to a request that passed, for the experiments that it is part of.
func (r *request) answeredTried() {
	if len(r.Match.Placed) == 0 || r.verdict != decide.Pass {
		return
	}
	s := r.Rules.(*ruleset)
	for _, p := range r.Match.Placed {
		s.tallies[r.Match.Rules[p.Check].Index].Answered(p.Slice, r.status >= http.StatusInternalServerError)
	}
}

// variantOf names the variant of a rule with an experiment; "" without one.
func variantOf(c *rules.Compiled) string {
	switch {
	case c.Tried():
		return adminapi.VariantExperiment
	case c.Trial != nil:
		return adminapi.VariantBase
	}
	return ""
}

// showExperiment shows the counts of an experiment. It asks the store for the memory of one
// counter per slice.
func (e *Edge) showExperiment(w http.ResponseWriter, r *http.Request) {
	running, ok := e.runningRules(w)
	if !ok {
		return
	}
	id := r.URL.Query().Get("rule")
	t := running.tally(id)
	if t == nil {
		adminError(w, http.StatusNotFound, fmt.Errorf("rule: must name a running rule with an experiment (got %q); see /v1/rules", id))
		return
	}
	out := adminapi.Experiment{
		Node: e.config.Node.ID, Rule: id, RulesVersion: running.version, Version: t.Trial.Version, Since: t.Since.UTC(), Cut: t.Trial.Cut, Slices: t.Counts(),
	}
	if err := e.weigh(r.Context(), t.Keys(), out.Slices); err != nil {
		out.MemoryError = err.Error()
	}
	writeJSON(w, http.StatusOK, out)
}

// weighWithin bounds the time for asking the store about the memory of counters, weighing
// how many are asked about at once.
const (
	weighWithin = time.Second
	weighing    = 8
)

var errNoMemory = errors.New("store.kind: memory does not report the memory of a counter")

// weigh determines the memory of keys, one of each slice. It returns the first error.
func (e *Edge) weigh(ctx context.Context, keys [][]byte, slices []experiment.Counts) error {
	if e.chain.Shared == nil {
		return errNoMemory
	}
	ctx, cancel := context.WithTimeout(ctx, weighWithin)
	defer cancel()
	var next atomic.Int64
	var asking sync.WaitGroup
	failures := make([]error, weighing)
	for n := range weighing {
		asking.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= len(keys) {
					return
				}
				if keys[i] == nil {
					continue
				}
				size, err := e.chain.Shared.Memory(ctx, keys[i])
				switch {
				case err != nil:
					failures[n] = err
					return
				case size > 0: // otherwise it has expired
					slices[i].Bytes, slices[i].Keys = size, 1
				}
			}
		})
	}
	asking.Wait()
	return cmp.Or(failures...)
}

// experimentMetrics exports what experiments count, by variant.
type experimentMetrics struct{ rules func() *ruleset }

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
