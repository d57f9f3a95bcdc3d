package edge

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/valyala/fasthttp"

	"github.com/weir-edge/weir/internal/adminapi"
	"github.com/weir-edge/weir/internal/edge/decide"
	"github.com/weir-edge/weir/internal/edge/gateway"
)

// metrics are the counters of this node. Labels are bounded sets: never a client, a key, a
// path or an address, except an upstream's.
type metrics struct {
	registry *prometheus.Registry

	requests       [6]prometheus.Counter // by code class; index 0 counts other codes
	requestSeconds prometheus.Histogram
	panics         prometheus.Counter

	storeUp       prometheus.Gauge
	storeNodes    prometheus.Gauge
	storeMayEvict prometheus.Gauge
	storeEvicted  prometheus.Gauge
	storeErrors   *prometheus.CounterVec
	clockSteps    *prometheus.CounterVec
	batchSize     prometheus.Histogram

	documentsUnsigned *prometheus.GaugeVec

	gateways func(protocol string) func(gateway.Answer, time.Duration) // set by the listeners

	accessLogDropped prometheus.Counter
}

func newMetrics() *metrics {
	m := &metrics{registry: prometheus.NewRegistry()}
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
	m.requestSeconds = histogram("request_seconds", "Time from a request's header to the end of its response, in seconds.", adminapi.RequestBounds[:])
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

	m.documentsUnsigned = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "weir_documents_unsigned", Help: "1 while the active or the newest published document has no valid signature, 0 without documents.verify_keys.",
	}, []string{"document"})
	m.registry.MustRegister(m.documentsUnsigned)
	for _, document := range [...]string{"rules", "shedder"} {
		m.documentsUnsigned.WithLabelValues(document)
	}
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
