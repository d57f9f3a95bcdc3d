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
		queries:  r.Counters("weir_dns_queries_total", "DNS queries by answer: answer, spilled (nearest PoP cannot serve all), fail_open (no PoP is healthy), yielded (another router hears a region, this one none), nodata, nxdomain, refused, truncated (too long for UDP), slipped and dropped (over the rate), …", "answer"),
		unsaved:  r.Counter("weir_dns_state_save_failures_total", "Failed writes of the file from which the router starts without Consul (--state)."),
		moves:    r.Counter("weir_dns_moves_total", "Client networks (EDNS client subnet) sent to another PoP than the last time, among up to 65,536 networks."),
	}
	r.GaugeFunc("weir_dns_ready", "1 while the router answers; 0 before it has a topology.", func() float64 { return metric.OneIf(ready()) })
	r.GaugeFunc("weir_dns_yields", "1 while the router hears no region and another router proves that it does, so queries for the nearest PoP get SERVFAIL.",
		func() float64 { return metric.OneIf(yields()) })
	r.GaugeFunc("weir_dns_geoip_faulty", "1 while the file of --geoip cannot be read, so that its previous content is used, or has located none of 10,000 clients.",
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
	popUpDesc       = metric.ReadGauge("weir_dns_pop_up", "1 while the PoP is healthy enough to receive clients.", "region", "pop")
	popDrainedDesc  = metric.ReadGauge("weir_dns_pop_drained", "1 while the PoP is drained.", "region", "pop")
	popDemandDesc   = metric.ReadGauge("weir_dns_pop_demand", "Demand in requests per second, as the PoP's edges publish it; absent if they publish none.", "region", "pop")
	popCapacityDesc = metric.ReadGauge("weir_dns_pop_capacity", "Requests per second that the PoP can serve, measured, stated or estimated.", "region", "pop")
	popGivesDesc    = metric.ReadGauge("weir_dns_pop_gives", "Share of the PoP's clients, 0 to 1, that this router sends to another PoP.", "region", "pop", "to")
	popAnswersDesc  = metric.ReadGauge("weir_dns_pop_answers", "1 while an address of the PoP answers this router's probes; absent without probes.", "region", "pop")
	regionKnownDesc = metric.ReadGauge("weir_dns_region_known", "1 while the router knows the region's edges, from its own Consul or through another.", "region")
	regionAgeDesc   = metric.ReadGauge("weir_dns_region_facts_age_seconds", "Age of the router's knowledge of the region, in seconds; 0 while it is known, +Inf if it was never known.", "region")
	unsignedDesc    = metric.ReadGauge("weir_dns_topology_unsigned", "1 while the topology in the region's Consul has no valid signature; 0 without --verify-keys.", "region")
	unreadableDesc  = metric.ReadGauge("weir_dns_documents_unreadable", "1 while the region's topology or drains cannot be read, or the pointer to the drains is gone: the router keeps the last ones.", "region")
	refusedDesc     = metric.ReadCounter("weir_dns_records_refused_total", "Records in weir/spill that the router has ignored: not signed by a router of the topology, put back, or beyond what a PoP can serve.")
	steersDesc      = metric.ReadGauge("weir_dns_steers", "0 while the router sends all clients to the first region although the topology has others and does not ask for that.")
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
