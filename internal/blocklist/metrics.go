package blocklist

import (
	"context"
	"fmt"
	"math"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/weir-edge/weir/internal/httpconns"
)

// metrics are those of a process that follows a list.
type metrics struct {
	registry *prometheus.Registry
	entries  *prometheus.GaugeVec
	private  *prometheus.GaugeVec
	failures *prometheus.CounterVec
	at       atomic.Int64 // when all regions had it last, in ns; 0: never
}

func newMetrics(c *Config) *metrics {
	m := &metrics{registry: prometheus.NewRegistry()}
	m.entries = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "weir_list_networks", Help: "Networks of a remote list that a region blocks.",
	}, []string{"list", "region"})
	m.private = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "weir_list_private", Help: "Networks of a remote list that were left out, because they are not public.",
	}, []string{"list"})
	m.failures = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "weir_list_failures_total", Help: "Failures to follow a remote list: fetch, list (it is malformed or dangerous), loss (a region would lose too much), region (it cannot be read or written).",
	}, []string{"list", "reason"})
	of := prometheus.Labels{"list": c.Name}
	age := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "weir_list_age_seconds", Help: "How long ago all regions had what a remote list said; +Inf if not since this process began.", ConstLabels: of,
	}, func() float64 {
		at := m.at.Load()
		if at == 0 {
			return math.Inf(1)
		}
		return time.Since(time.Unix(0, at)).Seconds()
	})
	every := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "weir_list_interval_seconds", Help: "How often a remote list is fetched.", ConstLabels: of,
	}, c.Every.Seconds)
	m.private.WithLabelValues(c.Name)
	for _, kind := range []string{failedFetch, failedList, failedLoss, failedRegion} { // so that rates begin at the first
		m.failures.WithLabelValues(c.Name, kind)
	}
	m.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), collectors.NewBuildInfoCollector(),
		m.entries, m.private, m.failures, age, every)
	return m
}

func (m *metrics) failed(list, kind string) { m.failures.WithLabelValues(list, kind).Inc() }

func (m *metrics) succeeded(now time.Time) { m.at.Store(now.UnixNano()) }

// Serve serves /metrics and /healthz at an address until stop is called.
func (s *Sync) Serve(addr string) (stop func(), err error) {
	l, err := net.Listen("tcp", addr)
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
	var running sync.WaitGroup
	running.Go(func() { _ = server.Serve(l) }) // until it is shut down
	s.Log.Info("metrics", "listen", l.Addr().String())
	return func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if server.Shutdown(ctx) != nil {
			_ = server.Close() // slow readers have had a second
		}
		running.Wait()
	}, nil
}
