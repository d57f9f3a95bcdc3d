package ruleset

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/weir-edge/weir/internal/edge/decide"
	"github.com/weir-edge/weir/internal/metric"
	"github.com/weir-edge/weir/pkg/limiter"
)

type metrics struct {
	limited         prometheus.Counter
	decisions       *prometheus.CounterVec
	decisionSeconds [limiter.SourceCount]prometheus.Observer

	info                          *prometheus.GaugeVec
	rejected, cacheErrors         prometheus.Counter
	stale, sourceUp, bootstrapped prometheus.Gauge
	apart                         prometheus.Gauge
}

func newMetrics(r metric.Registry, age func() float64) *metrics {
	m := &metrics{
		limited:      r.Counter("weir_requests_limited_total", "Requests refused with 429, by any rule."),
		decisions:    r.Counters("weir_decisions_total", "Checks decided, by rule, outcome (allowed, limited, shadow_limited, error) and source (redis, lease, reported, memory, denied_memory, fallback).", "rule", "outcome", "source"),
		info:         r.Gauges("weir_rules_info", "1 for the active version of the rules.", "version"),
		rejected:     r.Counter("weir_rules_rejected_total", "Rule documents and pointers refused, each once."),
		stale:        r.Gauge("weir_rules_stale", "1 while the active rules are not the intended ones, or the intended ones are unknown."),
		bootstrapped: r.Gauge("weir_rules_bootstrapped", "1 while the active rules are the copy at rules.bootstrap."),
		apart:        r.Gauge("weir_rules_apart_until_seconds", "Until when the active rules differ from other nodes' on purpose, in Unix seconds: the end of a canary or wave, or year 9999 after a change with --region; else 0."),
		sourceUp:     r.Gauge("weir_rules_source_up", "1 while the rule file is readable, or Consul answers. A hanging Consul shows within 21 s."),
		cacheErrors:  r.Counter("weir_rules_cache_errors_total", "Failures to write or use rules.cache."),
	}
	seconds := r.Histograms("weir_decision_seconds", "Time to decide a request, in seconds, by source.", decide.SecondsBuckets, "source")
	for s := limiter.SourceRedis; int(s) < limiter.SourceCount; s++ {
		m.decisionSeconds[s] = seconds.WithLabelValues(s.String())
	}
	r.GaugeFunc("weir_rules_age_seconds", "Time since the active rules were loaded, in seconds; NaN while there are none.", age)
	return m
}

// activated records that these rules are active, and drops the counters of removed rules.
func (m *metrics) activated(now, before *Running) {
	m.info.Reset()
	m.info.WithLabelValues(now.version).Set(1)
	if before == nil {
		return
	}
	for _, rule := range before.set.Rules() {
		if _, stays := now.set.Rule(rule.ID); stays {
			continue
		}
		// One by one: matching by the rule alone would scan every series.
		for _, o := range outcomeNames {
			for s := limiter.SourceRedis; int(s) < limiter.SourceCount; s++ {
				m.decisions.DeleteLabelValues(rule.ID, o, s.String())
			}
		}
	}
}
