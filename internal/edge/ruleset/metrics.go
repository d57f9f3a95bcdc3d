package ruleset

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/weir-edge/weir/internal/edge/decide"
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

func newMetrics(registry *prometheus.Registry, age func() float64) *metrics {
	auto := promauto.With(registry)
	counter := func(name, help string) prometheus.Counter {
		return auto.NewCounter(prometheus.CounterOpts{Name: "weir_" + name, Help: help})
	}
	gauge := func(name, help string) prometheus.Gauge {
		return auto.NewGauge(prometheus.GaugeOpts{Name: "weir_" + name, Help: help})
	}
	m := &metrics{
		limited:      counter("requests_limited_total", "Requests refused with 429, by any rule."),
		decisions:    auto.NewCounterVec(prometheus.CounterOpts{Name: "weir_decisions_total", Help: "Checks decided, by rule, outcome and answering layer."}, []string{"rule", "outcome", "source"}),
		info:         auto.NewGaugeVec(prometheus.GaugeOpts{Name: "weir_rules_info", Help: "1 for the version of the rules that this node runs."}, []string{"version"}),
		rejected:     counter("rules_rejected_total", "Rule documents refused; the previous rules kept running."),
		stale:        gauge("rules_stale", "1 while the running rules are not the newest published ones, or the newest are unknown."),
		bootstrapped: gauge("rules_bootstrapped", "1 while the running rules are the copy at rules.bootstrap, because the node started without Consul."),
		apart:        gauge("rules_apart_until_seconds", "Until when the running rules differ from other nodes' on purpose, in seconds since 1970: a canary's, a wave's, or those of a change with --region; 0 if they should not differ."),
		sourceUp:     gauge("rules_source_up", "1 while the source of the rules can be read: Consul, or the file."),
		cacheErrors:  counter("rules_cache_errors_total", "Failures to write the last good rules to disk, or to use those found there."),
	}
	seconds := auto.NewHistogramVec(prometheus.HistogramOpts{
		Name: "weir_decision_seconds", Help: "Time to decide a request, in seconds, by answering layer.", Buckets: decide.SecondsBuckets,
	}, []string{"source"})
	for s := limiter.SourceRedis; int(s) < limiter.SourceCount; s++ {
		m.decisionSeconds[s] = seconds.WithLabelValues(s.String())
	}
	auto.NewGaugeFunc(prometheus.GaugeOpts{Name: "weir_rules_age_seconds", Help: "Time since the running rules were loaded, in seconds; NaN before there are any."}, age)
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
