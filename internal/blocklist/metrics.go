package blocklist

import (
	"fmt"
	"math"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/weir-edge/weir/internal/bind"
	"github.com/weir-edge/weir/internal/httpconns"
	"github.com/weir-edge/weir/internal/metric"
)

// metrics are those of a process that follows a list.
type metrics struct {
	registry metric.Registry
	entries  *prometheus.GaugeVec
	private  *prometheus.GaugeVec
	failures *prometheus.CounterVec
	at       atomic.Int64 // when all regions had it last, in ns; 0: never
}

var (
	age   = metric.ReadGauge("weir_list_age_seconds", "Time since all regions last matched the remote list, in seconds; +Inf if not since the process started.", "list")
	every = metric.ReadGauge("weir_list_interval_seconds", "How often the list is fetched (--every), in seconds.", "list")
)

func newMetrics(c *Config) *metrics {
	r := metric.New()
	m := &metrics{
		registry: r,
		entries:  r.Gauges("weir_list_networks", "Networks of the list that the region blocked after its last successful round.", "list", "region"),
		private:  r.Gauges("weir_list_private", "Lines skipped because their networks are not public.", "list"),
		failures: r.Counters("weir_list_failures_total", "Rounds that failed, by reason: fetch (the list cannot be read), list (it is malformed or dangerous), loss (a region would lose too much of it), region (a region cannot be read or written).", "list", "reason"),
	}
	m.private.WithLabelValues(c.Name)
	for _, kind := range []string{failedFetch, failedList, failedLoss, failedRegion} { // so that rates begin at the first
		m.failures.WithLabelValues(c.Name, kind)
	}
	r.Collect(func(to chan<- prometheus.Metric) {
		old := math.Inf(1)
		if at := m.at.Load(); at != 0 {
			old = time.Since(time.Unix(0, at)).Seconds()
		}
		age.Send(to, old, c.Name)
		every.Send(to, c.Every.Seconds(), c.Name)
	}, age, every)
	return m
}

func (m *metrics) failed(list, kind string) { m.failures.WithLabelValues(list, kind).Inc() }

func (m *metrics) succeeded(now time.Time) { m.at.Store(now.UnixNano()) }

// Serve serves /metrics and /healthz at an address until stop is called.
func (s *Sync) Serve(addr string) (stop func(), err error) {
	l, err := bind.TCP(addr)
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(s.metrics.registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprintln(w, "ok") // the caller may be gone
	})
	server := httpconns.New(mux)
	server.WriteTimeout = 30 * time.Second
	s.Log.Info("metrics", "listen", l.Addr().String())
	return httpconns.Serve(server, l, time.Second, func(error) {}), nil // the list is followed anyway
}
