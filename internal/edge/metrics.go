package edge

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/valyala/fasthttp"

	"github.com/weir-edge/weir/internal/adminapi"
	"github.com/weir-edge/weir/internal/edge/decide"
	"github.com/weir-edge/weir/internal/edge/gateway"
	"github.com/weir-edge/weir/pkg/limiter"
)

// metrics are the counters of this node. Labels are bounded sets: never a client, a key, a
// path or an address, except an upstream's.
type metrics struct {
	registry *prometheus.Registry

	requests        [6]prometheus.Counter // by code class; index 0 counts other codes
	limited         prometheus.Counter
	requestSeconds  prometheus.Histogram
	decisions       *prometheus.CounterVec
	decisionSeconds [limiter.SourceCount]prometheus.Observer
	panics          prometheus.Counter

	storeUp       prometheus.Gauge
	storeNodes    prometheus.Gauge
	storeMayEvict prometheus.Gauge
	storeEvicted  prometheus.Gauge
	storeErrors   *prometheus.CounterVec
	clockSteps    *prometheus.CounterVec
	batchSize     prometheus.Histogram

	rulesInfo     *prometheus.GaugeVec
	rulesAge      prometheus.GaugeFunc
	rulesRejected prometheus.Counter
	rulesStale    prometheus.Gauge
	sourceUp      prometheus.Gauge

	rulesBootstrapped prometheus.Gauge
	documentsUnsigned *prometheus.GaugeVec
	rulesApart        prometheus.Gauge

	cacheErrors prometheus.Counter

	shed            *prometheus.CounterVec
	shedderInfo     *prometheus.GaugeVec
	shedderSecret   *prometheus.GaugeVec
	shedderRejected prometheus.Counter
	shedCacheErrors prometheus.Counter

	loadFollowed *prometheus.GaugeVec
	loadNodes    *prometheus.GaugeVec
	loadWanted   *prometheus.CounterVec
	loadAlone    prometheus.Gauge
	rulesLowered *prometheus.GaugeVec

	upstreamSeconds *prometheus.HistogramVec
	upstreamErrors  *prometheus.CounterVec
	upstreamUnasked prometheus.Counter

	gateways func(protocol string) func(gateway.Answer, time.Duration) // set by the listeners

	accessLogDropped prometheus.Counter

	clientBlocks      prometheus.Counter
	clientNetworks    *prometheus.GaugeVec
	clientNetworksUp  prometheus.Gauge
	clientNetworkDisk prometheus.Counter

	conductMetrics
}

func newMetrics(rulesAge func() float64) *metrics {
	m := &metrics{registry: prometheus.NewRegistry(), conductMetrics: newConductMetrics()}
	m.registry.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		collectors.NewBuildInfoCollector(),
	)
	counter := func(name, help string) prometheus.Counter {
		c := prometheus.NewCounter(prometheus.CounterOpts{Name: "weir_" + name, Help: help})
		m.registry.MustRegister(c)
		return c
	}
	counters := func(name, help string, labels ...string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "weir_" + name, Help: help}, labels)
		m.registry.MustRegister(c)
		return c
	}
	gauge := func(name, help string) prometheus.Gauge {
		g := prometheus.NewGauge(prometheus.GaugeOpts{Name: "weir_" + name, Help: help})
		m.registry.MustRegister(g)
		return g
	}
	histogram := func(name, help string, buckets []float64) prometheus.Histogram {
		h := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "weir_" + name, Help: help, Buckets: buckets})
		m.registry.MustRegister(h)
		return h
	}

	requests := counters("requests_total", "Requests answered, by class of status code.", "code_class")
	for i, class := range [...]string{"other", "1xx", "2xx", "3xx", "4xx", "5xx"} {
		m.requests[i] = requests.WithLabelValues(class)
	}
	m.limited = counter("requests_limited_total", "Requests refused with 429, by any rule.")
	m.requestSeconds = histogram("request_seconds", "Time from a request's header to the end of its response, in seconds.", adminapi.RequestBounds[:])
	m.decisions = counters("decisions_total", "Checks decided, by rule, outcome and answering layer.", "rule", "outcome", "source")
	decisionSeconds := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "weir_decision_seconds", Help: "Time to decide a request, in seconds, by answering layer.", Buckets: decide.SecondsBuckets,
	}, []string{"source"})
	m.registry.MustRegister(decisionSeconds)
	for s := limiter.SourceRedis; int(s) < limiter.SourceCount; s++ {
		m.decisionSeconds[s] = decisionSeconds.WithLabelValues(s.String())
	}
	m.panics = counter("panics_total", "Requests answered 500 because a handler panicked.")

	m.storeUp = gauge("store_up", "1 while every shard of the store answers, 0 while any does not.")
	m.storeNodes = gauge("store_nodes", "Edge nodes that share the store, by which a limit is divided while the store is unreachable.")
	m.storeMayEvict = gauge("store_may_evict", "1 while a master of the store may evict counters when its memory is full, which resets their limits.")
	m.storeEvicted = gauge("store_evicted_keys", "Keys that the masters of the store have evicted since they started.")
	m.storeErrors = counters("store_errors_total", "Decisions that the store could not make, by kind.", "kind")
	m.clockSteps = counters("clock_steps_total", "Times that a clock used for counting was adjusted: the store's or the node's.", "clock", "direction")
	for _, clock := range [...]string{"store", "node"} { // start at 0, so that the first step is an increase
		m.clockSteps.WithLabelValues(clock, "back")
		m.clockSteps.WithLabelValues(clock, "forward")
	}
	m.batchSize = histogram("store_batch_size", "Calls that went to a shard in one round trip.", prometheus.ExponentialBuckets(1, 2, 10))

	m.rulesInfo = prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "weir_rules_info", Help: "1 for the version of the rules that this node runs."}, []string{"version"})
	m.rulesAge = prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "weir_rules_age_seconds", Help: "Time since the running rules were loaded, in seconds; NaN before there are any."}, rulesAge)
	m.registry.MustRegister(m.rulesInfo, m.rulesAge)
	m.rulesRejected = counter("rules_rejected_total", "Rule documents refused; the previous rules kept running.")
	m.rulesStale = gauge("rules_stale", "1 while the running rules are not the newest published ones, or the newest are unknown.")
	m.rulesBootstrapped = gauge("rules_bootstrapped", "1 while the running rules are the copy at rules.bootstrap, because the node started without Consul.")
	m.rulesApart = gauge("rules_apart_until_seconds", "Until when the running rules differ from other nodes' on purpose, in seconds since 1970: a canary's, a wave's, or those of a change with --region; 0 if they should not differ.")
	m.documentsUnsigned = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "weir_documents_unsigned", Help: "1 while the active or the newest published document has no valid signature, 0 without documents.verify_keys.",
	}, []string{"document"})
	m.registry.MustRegister(m.documentsUnsigned)
	m.sourceUp = gauge("rules_source_up", "1 while the source of the rules can be read: Consul, or the file.")
	m.cacheErrors = counter("rules_cache_errors_total", "Failures to write the last good rules to disk, or to use those found there.")

	m.shed = counters("shed_total", "Requests refused with 503 by the load shedder, by class, by the signal that caused it, or the kind of cap, and by upstream group.", "class", "reason", "upstream")
	m.shedderInfo = prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "weir_shedder_info", Help: "1 for the version of the shedder's settings that this node runs, and where they came from."}, []string{"version", "source"})
	m.shedderSecret = prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "weir_shedder_secret_info", Help: "1 for the fingerprint of the secret by which this node chooses which users to shed: none without one, own if the node generated it."}, []string{"fingerprint"})
	m.registry.MustRegister(m.shedderInfo, m.shedderSecret)
	m.shedderRejected = counter("shedder_rejected_total", "Documents of shedder settings in Consul, and pointers, refused; the previous settings stayed active.")
	m.shedCacheErrors = counter("shedder_cache_errors_total", "Failures to write the last good shedder settings to disk, or to use those found there.")

	byGroup := func(name, help string) *prometheus.GaugeVec {
		g := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "weir_" + name, Help: help}, []string{"upstream"})
		m.registry.MustRegister(g)
		return g
	}
	m.loadFollowed = byGroup("load_followed", "The utilization of an upstream group that limits with under_load follow; 0 while no rule does.")
	m.loadNodes = byGroup("load_nodes", "Nodes of the region that contribute to this utilization.")
	m.rulesLowered = byGroup("rules_lowered", "Rules whose limits are lowered for requests to the group.")
	m.loadWanted = counters("load_wanted_total", "Requests refused only because a limit was lowered; they stay demand.", "upstream")
	m.loadAlone = gauge("load_alone", "1 while limits with under_load follow the load of this node alone, 0 while they follow the region's.")

	m.upstreamSeconds = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "weir_upstream_seconds", Help: "Time until an upstream's response headers, in seconds, by upstream group.", Buckets: prometheus.DefBuckets,
	}, []string{"upstream"})
	m.registry.MustRegister(m.upstreamSeconds)
	m.upstreamErrors = counters("upstream_errors_total", "Attempts that an upstream did not answer, by kind and upstream group.", "kind", "upstream")
	m.upstreamUnasked = counter("upstream_unasked_total", "Times an upstream sent bytes that no request asked for.")
	m.clientBlocks = counter("client_blocks_total", "Requests refused with 403 because an operator blocks the client's network.")
	m.clientNetworks = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "weir_client_networks", Help: "Client networks that operators block or allow and that have not expired.",
	}, []string{"action"})
	m.registry.MustRegister(m.clientNetworks)
	m.clientNetworksUp = gauge("client_networks_source_up", "1 while the client networks in Consul can be read; always 1 without Consul.")
	m.clientNetworkDisk = counter("client_networks_cache_errors_total", "Failures to write the client networks to disk, or to use those found there.")
	m.accessLogDropped = counter("access_log_dropped_total", "Lines of the access log that were lost: the disk was too slow, or the file could not be written.")
	return m
}

// served counts a finished request.
func (m *metrics) served(r *request) {
	class := r.status / 100
	if class < 1 || class > 5 {
		class = 0
	}
	m.requests[class].Inc()
	if r.status == fasthttp.StatusSwitchingProtocols {
		return // hours of a tunnel say nothing about requests
	}
	took := r.Took
	if r.verdict != decide.Limited { // else all that follows the decision is writing the answer down
		took = time.Since(r.Began)
	}
	m.requestSeconds.Observe(took.Seconds())
}

// running records that these rules are active, and drops the counters of removed rules.
func (m *metrics) running(now, before *ruleset) {
	m.rulesInfo.Reset()
	m.rulesInfo.WithLabelValues(now.version).Set(1)
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

// upgraded exports how many connections have switched to another protocol.
func (m *metrics) upgraded(tunnels func() int) {
	m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "weir_upgrades_active", Help: "Connections that have switched to another protocol, such as WebSocket.",
	}, func() float64 { return float64(tunnels()) }))
}

func oneIf(is bool) float64 {
	if is {
		return 1
	}
	return 0
}
