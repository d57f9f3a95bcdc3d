package router

import (
	"math"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/weir-edge/weir/internal/metric"
	"github.com/weir-edge/weir/pkg/region"
	"github.com/weir-edge/weir/pkg/region/dns"
)

// metrics are those of a router.
type metrics struct {
	registry metric.Registry
	queries  *prometheus.CounterVec
	unsaved  prometheus.Counter
	moves    prometheus.Counter
}

var _ dns.Observer = (*metrics)(nil)

func newMetrics(view func() *region.View, geo *GeoFile, ready, yields func() bool) *metrics {
	r := metric.New()
	m := &metrics{
		registry: r,
		queries:  r.Counters("weir_dns_queries_total", "DNS queries, by kind of answer: answer, spilled (the nearest PoP cannot serve all of its clients), fail_open (no PoP is healthy), nodata, nxdomain, refused, …", "answer"),
		unsaved:  r.Counter("weir_dns_state_save_failures_total", "How often the state could not be written to the file of --state."),
		moves:    r.Counter("weir_dns_moves_total", "Client networks, as resolvers name them, that were sent to a different PoP than the last time."),
	}
	r.GaugeFunc("weir_dns_ready", "1 while the router answers.", func() float64 { return metric.OneIf(ready()) })
	r.GaugeFunc("weir_dns_yields", "1 while this router hears no region and another router proves that it does, so that queries for the nearest PoP get SERVFAIL.",
		func() float64 { return metric.OneIf(yields()) })
	r.GaugeFunc("weir_dns_geoip_faulty", "1 while the file of --geoip cannot be read, so that its previous content is used, or locates nobody; 0 otherwise, and without --geoip.",
		func() float64 { return metric.OneIf(geo.fault() != "") })
	for _, kind := range dns.Kinds { // so that rates start at the first one
		m.queries.WithLabelValues(kind)
	}
	r.Collect(func(to chan<- prometheus.Metric) { collect(to, view(), geo != nil) }, popUpDesc, popDrainedDesc, popDemandDesc, popCapacityDesc,
		popGivesDesc, popAnswersDesc, regionKnownDesc, regionAgeDesc, unsignedDesc, unreadableDesc, refusedDesc, steersDesc)
	return m
}

// Query implements dns.Observer.
func (m *metrics) Query(answer string) { m.queries.WithLabelValues(answer).Inc() }

// Moved implements dns.Observer.
func (m *metrics) Moved() { m.moves.Inc() }

func (m *metrics) handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4})
}

var (
	popUpDesc       = metric.ReadGauge("weir_dns_pop_up", "1 while a PoP is healthy enough to receive clients, 0 while it is down.", "region", "pop")
	popDrainedDesc  = metric.ReadGauge("weir_dns_pop_drained", "1 while a PoP is taken out of DNS on purpose.", "region", "pop")
	popDemandDesc   = metric.ReadGauge("weir_dns_pop_demand", "How many requests per second a PoP is asked for, as its edges publish it.", "region", "pop")
	popCapacityDesc = metric.ReadGauge("weir_dns_pop_capacity", "How many requests per second a PoP can serve, as its edges measured it, its topology states it, or its edges promise.", "region", "pop")
	popGivesDesc    = metric.ReadGauge("weir_dns_pop_gives", "The share of a PoP's clients, 0 to 1, that this router sends to another PoP, because the first cannot serve them all.", "region", "pop", "to")
	popAnswersDesc  = metric.ReadGauge("weir_dns_pop_answers", "1 while an address of a PoP answers this router's probes, 0 while none does; only if the topology has a probe.", "region", "pop")
	regionKnownDesc = metric.ReadGauge("weir_dns_region_known", "1 while the state of a region's edges is known, from its own Consul or through another, 0 while it is the last known one.", "region")
	regionAgeDesc   = metric.ReadGauge("weir_dns_region_facts_age_seconds", "How old the state of a region is: 0 while it is known, +Inf if it was never reported.", "region")
	unsignedDesc    = metric.ReadGauge("weir_dns_topology_unsigned", "1 while the topology that a region's Consul holds has no valid signature, 0 without --verify-keys.", "region")
	unreadableDesc  = metric.ReadGauge("weir_dns_documents_unreadable", "1 while the topology or the drains that a region's Consul holds cannot be read, so that the last ones stay.", "region")
	refusedDesc     = metric.ReadCounter("weir_dns_records_refused_total", "Records in weir/spill that this router has ignored: not signed by a router of the topology, replayed, or beyond what PoPs can serve.")
	steersDesc      = metric.ReadGauge("weir_dns_steers", "0 while this router sends clients to the first region although the topology has others and does not ask for it.")
)

// collect exports a state. located says that the router has a GeoIP database.
func collect(to chan<- prometheus.Metric, v *region.View, located bool) {
	for name, s := range v.Regions {
		regionKnownDesc.Send(to, metric.OneIf(s.Known), name)
		age := s.Age(time.Now()).Seconds()
		if !s.Known && s.Heard.IsZero() {
			age = math.Inf(1)
		}
		regionAgeDesc.Send(to, age, name)
		unsignedDesc.Send(to, metric.OneIf(s.Unsigned), name)
		unreadableDesc.Send(to, metric.OneIf(s.Unreadable), name)
	}
	refusedDesc.Send(to, float64(v.Refused))
	if v.Topology == nil {
		return
	}
	steersDesc.Send(to, metric.OneIf(v.Topology.CannotSteer(located) == ""))
	for _, r := range v.Topology.Regions {
		for _, p := range r.PoPs {
			s := v.PoPs[p.Name]
			popUpDesc.Send(to, metric.OneIf(s.Healthy), r.Name, p.Name)
			popDrainedDesc.Send(to, metric.OneIf(s.Drained != nil), r.Name, p.Name)
			if s.Capacity > 0 {
				popDemandDesc.Send(to, s.Demand, r.Name, p.Name)
				popCapacityDesc.Send(to, s.Capacity, r.Name, p.Name)
			}
			for other, part := range v.Spill.Gifts[p.Name].Parts {
				popGivesDesc.Send(to, part.Given(), r.Name, p.Name, other)
			}
			if s.ProbeResult != "" {
				popAnswersDesc.Send(to, metric.OneIf(s.ProbeResult == region.Answers), r.Name, p.Name)
			}
		}
	}
}
