package edge

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/valyala/fasthttp"

	"github.com/weir-edge/weir/internal/adminapi"
	"github.com/weir-edge/weir/internal/edge/decide"
	"github.com/weir-edge/weir/internal/edge/gateway"
	"github.com/weir-edge/weir/internal/metric"
)

// metrics are the counters of this node. Labels are bounded sets: never a client, a key, a
// path or an address, except an upstream's.
type metrics struct {
	registry metric.Registry

	requests       [6]prometheus.Counter // by code class; index 0 counts other codes
	requestSeconds prometheus.Observer
	panics         prometheus.Counter

	storeUp       prometheus.Gauge
	storeNodes    prometheus.Gauge
	storeMayEvict prometheus.Gauge
	storeEvicted  prometheus.Gauge
	storeErrors   *prometheus.CounterVec
	clockSteps    *prometheus.CounterVec
	batchSize     prometheus.Observer

	documentsUnsigned *prometheus.GaugeVec

	gateways func(protocol string) func(gateway.Answer, time.Duration) // set by the listeners

	accessLogDropped prometheus.Counter
}

func newMetrics() *metrics {
	r := metric.New()
	m := &metrics{
		registry:       r,
		requestSeconds: r.Histogram("weir_request_seconds", "Time from a request's header to the end of its response, in seconds, without connections that switch to another protocol.", adminapi.RequestBounds[:]),
		panics:         r.Counter("weir_panics_total", "Requests answered 500 because of a bug in weir. Please report it."),

		storeUp:       r.Gauge("weir_store_up", "1 while every master of the store answers and accepts writes, checked each second."),
		storeNodes:    r.Gauge("weir_store_nodes", "Nodes among which a limit is divided while the store is unreachable."),
		storeMayEvict: r.Gauge("weir_store_may_evict", "1 while a master may evict counters, which resets their limits: it has maxmemory without noeviction. Read each minute; 0 where INFO is refused."),
		storeEvicted:  r.Gauge("weir_store_evicted_keys", "Keys that the masters of the store have evicted since they started."),
		storeErrors:   r.Counters("weir_store_errors_total", "Decisions that the store failed to make, by kind: timeout, breaker_open, connection, queue_full, unavailable, reply.", "kind"),
		clockSteps:    r.Counters("weir_clock_steps_total", "Times that a clock was set by a second or more, by clock (store: a Redis master's; node) and direction (back, forward).", "clock", "direction"),
		batchSize:     r.Histogram("weir_store_batch_size", "Decisions that shared a round trip to Redis.", prometheus.ExponentialBuckets(1, 2, 10)),

		documentsUnsigned: r.Gauges("weir_documents_unsigned", "1 while the active document (rules, shedder or policy), or the one that Consul names, has no valid signature; 0 without documents.verify_keys.", "document"),
		accessLogDropped:  r.Counter("weir_access_log_dropped_total", "Access log lines lost because the disk was too slow or the file could not be written."),
	}
	requests := r.Counters("weir_requests_total", "Requests answered, including those that could not be parsed or did not arrive in time, by class of the status: 1xx to 5xx, or other.", "code_class")
	for i, class := range [...]string{"other", "1xx", "2xx", "3xx", "4xx", "5xx"} {
		m.requests[i] = requests.WithLabelValues(class)
	}
	for _, clock := range [...]string{"store", "node"} { // start at 0, so that the first step is an increase
		m.clockSteps.WithLabelValues(clock, "back")
		m.clockSteps.WithLabelValues(clock, "forward")
	}
	for _, document := range [...]string{"rules", "shedder"} {
		m.documentsUnsigned.WithLabelValues(document)
	}
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
