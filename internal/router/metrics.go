package router

import (
	"math"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/weir-edge/weir/pkg/region"
	"github.com/weir-edge/weir/pkg/region/dns"
)

// metrics are those of a router.
type metrics struct {
	registry *prometheus.Registry
	queries  *prometheus.CounterVec
	unsaved  prometheus.Counter
	moves    prometheus.Counter
}

var _ dns.Observer = (*metrics)(nil)

func newMetrics(view func() *region.View, geo *GeoFile, ready func() bool) *metrics {
	m := &metrics{registry: prometheus.NewRegistry()}
	m.queries = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "weir_dns_queries_total", Help: "DNS queries, by kind of answer: answer, spilled (the nearest PoP cannot serve all of its clients), fail_open (no PoP is healthy), nodata, nxdomain, refused, …",
	}, []string{"answer"})
	m.unsaved = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "weir_dns_state_save_failures_total", Help: "How often the state could not be written to the file of --state.",
	})
	m.moves = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "weir_dns_moves_total", Help: "Client networks, as resolvers name them, that were sent to a different PoP than the last time.",
	})
	answering := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "weir_dns_ready", Help: "1 while the router answers.",
	}, func() float64 { return oneIf(ready()) })
	geoFaulty := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "weir_dns_geoip_faulty", Help: "1 while the file of --geoip cannot be read, so that its previous content is used, or locates nobody; 0 otherwise, and without --geoip.",
	}, func() float64 { return oneIf(geo.fault() != "") })
	for _, kind := range dns.Kinds { // so that rates start at the first one
		m.queries.WithLabelValues(kind)
	}
	m.registry.MustRegister(
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), collectors.NewBuildInfoCollector(),
		m.queries, m.unsaved, m.moves, answering, geoFaulty, stateCollector{view, geo != nil},
	)
	return m
}

// Query implements dns.Observer.
func (m *metrics) Query(answer string) { m.queries.WithLabelValues(answer).Inc() }

// Moved implements dns.Observer.
func (m *metrics) Moved() { m.moves.Inc() }

func (m *metrics) handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4})
}

// stateCollector reads the state when metrics are collected, so that the series of
// removed PoPs disappear.
type stateCollector struct {
	view func() *region.View
	geo  bool // the router has a GeoIP database
}

var (
	popUpDesc = prometheus.NewDesc("weir_dns_pop_up", "1 while a PoP is healthy enough to receive clients, 0 while it is down.",
		[]string{"region", "pop"}, nil)
	popDrainedDesc = prometheus.NewDesc("weir_dns_pop_drained", "1 while a PoP is taken out of DNS on purpose.",
		[]string{"region", "pop"}, nil)
	popDemandDesc = prometheus.NewDesc("weir_dns_pop_demand", "How many requests per second a PoP is asked for, as its edges publish it.",
		[]string{"region", "pop"}, nil)
	popCapacityDesc = prometheus.NewDesc("weir_dns_pop_capacity", "How many requests per second a PoP can serve, as its edges measured it, its topology states it, or its edges promise.",
		[]string{"region", "pop"}, nil)
	popGivesDesc = prometheus.NewDesc("weir_dns_pop_gives", "The share of a PoP's clients, 0 to 1, that this router sends to another PoP, because the first cannot serve them all.",
		[]string{"region", "pop", "to"}, nil)
	popAnswersDesc = prometheus.NewDesc("weir_dns_pop_answers", "1 while an address of a PoP answers this router's probes, 0 while none does; only if the topology has a probe.",
		[]string{"region", "pop"}, nil)
	regionKnownDesc = prometheus.NewDesc("weir_dns_region_known", "1 while the state of a region's edges is known, from its own Consul or through another, 0 while it is the last known one.",
		[]string{"region"}, nil)
	regionAgeDesc = prometheus.NewDesc("weir_dns_region_facts_age_seconds", "How old the state of a region is: 0 while it is known, +Inf if it was never reported.",
		[]string{"region"}, nil)
	unsignedDesc = prometheus.NewDesc("weir_dns_topology_unsigned", "1 while the topology that a region's Consul holds has no valid signature, 0 without --verify-keys.",
		[]string{"region"}, nil)
	refusedDesc = prometheus.NewDesc("weir_dns_records_refused_total", "Records in weir/spill that this router has ignored: not signed by a router of the topology, replayed, or beyond what PoPs can serve.", nil, nil)
	steersDesc  = prometheus.NewDesc("weir_dns_steers", "0 while this router sends clients to the first region although the topology has others and does not ask for it.", nil, nil)
)

// Describe implements prometheus.Collector.
func (c stateCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{popUpDesc, popDrainedDesc, popDemandDesc, popCapacityDesc, popGivesDesc, popAnswersDesc, regionKnownDesc, regionAgeDesc, unsignedDesc, refusedDesc, steersDesc} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c stateCollector) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	v := c.view()
	for name, s := range v.Regions {
		gauge(regionKnownDesc, oneIf(s.Known), name)
		age := s.Age(time.Now()).Seconds()
		if !s.Known && s.Heard.IsZero() {
			age = math.Inf(1)
		}
		gauge(regionAgeDesc, age, name)
		gauge(unsignedDesc, oneIf(s.Unsigned), name)
	}
	ch <- prometheus.MustNewConstMetric(refusedDesc, prometheus.CounterValue, float64(v.Refused))
	if v.Topology == nil {
		return
	}
	gauge(steersDesc, oneIf(v.Topology.CannotSteer(c.geo) == ""))
	for _, r := range v.Topology.Regions {
		for _, p := range r.PoPs {
			s := v.PoPs[p.Name]
			gauge(popUpDesc, oneIf(s.Healthy), r.Name, p.Name)
			gauge(popDrainedDesc, oneIf(s.Drained != nil), r.Name, p.Name)
			if s.Capacity > 0 {
				gauge(popDemandDesc, s.Demand, r.Name, p.Name)
				gauge(popCapacityDesc, s.Capacity, r.Name, p.Name)
			}
			for to, part := range v.Spill.Gifts[p.Name].Parts {
				gauge(popGivesDesc, part.Given(), r.Name, p.Name, to)
			}
			if s.Sight != "" {
				gauge(popAnswersDesc, oneIf(s.Sight == region.Answers), r.Name, p.Name)
			}
		}
	}
}

func oneIf(is bool) float64 {
	if is {
		return 1
	}
	return 0
}
