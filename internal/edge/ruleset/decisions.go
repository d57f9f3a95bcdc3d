package ruleset

import (
	"net/http"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weir-edge/weir/internal/edge/decide"
	"github.com/weir-edge/weir/pkg/limiter"
)

// outcome is the value of the outcome label.
type outcome uint8

const (
	outcomeAllowed outcome = iota
	outcomeLimited
	outcomeShadowLimited
	outcomeError
	outcomeCount
)

var outcomeNames = [outcomeCount]string{"allowed", "limited", "shadow_limited", "error"}

// Decided implements decide.Rules: it counts the checks of a decision, and logs a refusal.
func (s *Running) Decided(r *decide.Request) {
	r.Took = time.Since(r.Began)
	s.count(r, r.Took)
	if len(r.Match.InExperiments) > 0 {
		s.countTried(r, r.Took)
	}
	if !r.Decision.Allowed {
		s.logRefusal(r)
	}
}

// count counts the checks of a decision. A check that would have passed does not
// count when another refused the request: it was not charged.
func (s *Running) count(r *decide.Request, took time.Duration) {
	m, slowest := s.of.metrics, limiter.SourceNone
	for i := range r.Decision.Results {
		res := &r.Decision.Results[i]
		if res.Source == limiter.SourceNone {
			continue
		}
		if slowest == limiter.SourceNone || slowest == limiter.SourceReported || slowest == limiter.SourceLease || res.Source == limiter.SourceFallback {
			slowest = res.Source
		}
		var o outcome
		switch {
		case res.Failed:
			o = outcomeError
		case res.Refuses(&r.Match.Checks[i]):
			o = outcomeLimited
		case !res.Allowed:
			o = outcomeShadowLimited
		case !r.Decision.Allowed:
			continue
		}
		rule := r.Match.Rules[i]
		if rule.IsVariant() && rule.Base().Experiment.Beside { // the rule itself has counted the request
			continue
		}
		s.counters[rule.Index].inc(m, rule.ID, o, res.Source)
		if o == outcomeLimited || o == outcomeShadowLimited {
			s.tops[rule.Index].add(r, i)
		}
	}
	if !r.Decision.Allowed && !r.Decision.StoreUnavailable {
		m.limited.Inc()
	}
	if slowest != limiter.SourceNone {
		m.decisionSeconds[slowest].Observe(took.Seconds())
	}
}

// ruleCounters are the decision counters of one rule. Most are never needed, and a series
// that does not exist is not scraped, so each is created when first counted.
type ruleCounters [outcomeCount][limiter.SourceCount]atomic.Pointer[prometheus.Counter]

func (c *ruleCounters) inc(m *metrics, rule string, o outcome, s limiter.Source) {
	counter := c[o][s].Load()
	if counter == nil {
		made := m.decisions.WithLabelValues(rule, outcomeNames[o], s.String())
		counter = &made
		c[o][s].Store(counter)
	}
	(*counter).Inc()
}

// logRefusal logs a refusal, at most once per second for each rule, and never includes
// request data that could be secret.
func (s *Running) logRefusal(r *decide.Request) {
	status := http.StatusTooManyRequests
	if r.Decision.StoreUnavailable {
		status = http.StatusServiceUnavailable
	}
	for i := range r.Decision.Results {
		res := &r.Decision.Results[i]
		if !res.Refuses(&r.Match.Checks[i]) {
			continue
		}
		rule := r.Match.Rules[i]
		if skipped, ok := s.samplers[rule.Index].Sample(r.Began); ok {
			l := r.Match.Checks[i].Limit
			s.of.log.Info("request limited", "rule", rule.ID, "client", r.Client, "status", status,
				"source", res.Source.String(), "retry_after", r.Decision.RetryAfter(r.Match.Checks).String(), "not_logged", skipped,
				"limit", r.Quota(l), "full_limit", l.Full().Limit)
		}
	}
}
