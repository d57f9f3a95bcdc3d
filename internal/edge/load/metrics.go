package load

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/weir-edge/weir/internal/metric"
	"github.com/weir-edge/weir/internal/shedding"
	"github.com/weir-edge/weir/pkg/shedder"
)

var (
	utilizationDesc = metric.ReadGauge("weir_utilization", "Utilization by this signal, 0 to 1; absent while the signal does not count.", "signal", "upstream")
	signalUpDesc    = metric.ReadGauge("weir_shed_signal_up", "1 while the signal is measured; 0 while it is missing or stale and ignored.", "signal", "upstream")
	signalDesc      = metric.ReadGauge("weir_shed_signal_value", "The signal in its own unit, times in seconds; absent while it does not count.", "signal", "upstream")
	kneeDesc        = metric.ReadGauge("weir_shed_signal_knee", "Where utilization by the signal begins (low), and where it reaches 1 (high), in the signal's unit.", "signal", "upstream", "knee")
	thresholdDesc   = metric.ReadGauge("weir_shed_threshold", "The utilization at which shedding begins (start), and the one that it then holds (target).", "upstream", "threshold")
	levelDesc       = metric.ReadGauge("weir_shed_level", "0 sheds nothing; each whole step sheds one more class.", "upstream")
	probabilityDesc = metric.ReadGauge("weir_shed_probability", "The share of the class that the level sheds, 0 to 1.", "class", "upstream")
	inflightDesc    = metric.ReadGauge("weir_inflight", "Requests between admission and the end of the upstream's response.", "class", "upstream")
	inflightMaxDesc = metric.ReadGauge("weir_inflight_max", "The class's cap: with this many requests of all classes in flight, the class is refused.", "class", "upstream")
	autoKneeDesc    = metric.ReadGauge("weir_shed_auto_knee", "The high knee of inflight that the node estimates, whether or not the settings use it; 0 until requests queued.", "upstream")
	fullRateDesc    = metric.ReadGauge("weir_shed_full_rate", "Requests per second that the origin answers to this node while requests queue there; until any have queued, the highest rate answered.", "upstream")
	baseDesc        = metric.ReadGauge("weir_shed_base_seconds", "How long the origin takes for a request without a queue, in seconds; 0 until measured.", "upstream")
	probesDesc      = metric.ReadCounter("weir_shed_probes_total", "Probes that measured weir_shed_base_seconds, by result: measured, or undecided (too many requests stayed in flight or too few were answered).", "upstream", "result")
	shadowKneeDesc  = metric.ReadGauge("weir_shadow_knee", "The high knee of inflight in a candidate's settings.", "candidate", "upstream")
	shadowDesc      = metric.ReadCounter("weir_shadow_shed_total", "Requests a candidate would shed. "+shedding.ShadowBias, "candidate", "class", "upstream")
)

// collect exports the shedders.
func (k *Shedding) collect(to chan<- prometheus.Metric) {
	for _, sheds := range k.shedders {
		s := sheds.Status()
		levelDesc.Send(to, s.Level, s.Name)
		thresholdDesc.Send(to, s.Settings.Start, s.Name, "start")
		thresholdDesc.Send(to, s.Settings.Target, s.Name, "target")
		for name := range s.Settings.Signals {
			knees := s.Settings.Knees(name, &s.Estimate)
			kneeDesc.Send(to, knees.Low, name, s.Name, "low")
			kneeDesc.Send(to, knees.High, name, s.Name, "high")
		}
		for _, signal := range s.Signals {
			up := signal.Problem == ""
			signalUpDesc.Send(to, metric.OneIf(up), signal.Name, s.Name)
			if up {
				signalDesc.Send(to, signal.Value, signal.Name, s.Name)
				utilizationDesc.Send(to, signal.Utilization, signal.Name, s.Name)
			}
		}
		for _, class := range s.Classes {
			probabilityDesc.Send(to, class.Probability, class.Name, s.Name)
			inflightDesc.Send(to, float64(class.InFlight), class.Name, s.Name)
			inflightMaxDesc.Send(to, float64(class.MaxInFlight), class.Name, s.Name)
		}
		estimate(to, s.Name, &s)
		for _, candidate := range s.Candidates {
			if candidate.Knee > 0 {
				shadowKneeDesc.Send(to, candidate.Knee, candidate.Name, s.Name)
			}
			for i, n := range candidate.Shed {
				if i < len(s.Classes) {
					shadowDesc.Send(to, float64(n), candidate.Name, s.Classes[i].Name, s.Name)
				}
			}
		}
	}
}

// estimate exports what the node has learned about a group's origin.
func estimate(to chan<- prometheus.Metric, group string, s *shedder.Status) {
	e := &s.Estimate
	autoKneeDesc.Send(to, e.High(s.Settings.Target), group)
	fullRateDesc.Send(to, e.Rate, group)
	baseDesc.Send(to, e.Base, group)
	probesDesc.Send(to, float64(e.Probes), group, "measured")
	probesDesc.Send(to, float64(e.Undecided), group, "undecided")
}

// expect creates the counters of what these settings may shed, so that counting
// allocates nothing.
func (m *shedMetrics) expect(s *shedSettings, settings *shedder.Settings, group string) {
	for _, class := range settings.Classes {
		reasons := []string{shedder.KindCap, shedder.KindClient}
		if settings.AutoFrom > 0 {
			reasons = append(reasons, shedder.KindProbe)
		}
		for name := range settings.Signals {
			reasons = append(reasons, name)
		}
		for _, reason := range reasons {
			s.counters[shedLabels{class.Name, reason, group}] = m.shed.WithLabelValues(class.Name, reason, group)
		}
	}
}

func (m *shedMetrics) count(s *shedSettings, reason shedder.Reason) {
	labels := shedLabels{reason.Class, reason.Signal, reason.Upstream}
	if reason.Kind != shedder.KindLevel {
		labels.reason = reason.Kind
	}
	counter := s.counters[labels]
	if counter == nil { // decided under the previous settings
		counter = m.shed.WithLabelValues(labels.class, labels.reason, labels.upstream)
	}
	counter.Inc()
}

// drop drops counters that only the previous settings had.
func (m *shedMetrics) drop(now, before *shedSettings) {
	if before == nil {
		return
	}
	for labels := range before.counters {
		if now.counters[labels] == nil {
			m.shed.DeleteLabelValues(labels.class, labels.reason, labels.upstream)
		}
	}
}

type shedMetrics struct {
	shed                  *prometheus.CounterVec
	info                  *prometheus.GaugeVec
	rejected, cacheErrors prometheus.Counter
}

func newShedMetrics(r metric.Registry) *shedMetrics {
	return &shedMetrics{
		shed:        r.Counters("weir_shed_total", "Requests refused with 503 by the shedder, by class, upstream group and reason: the winning signal, cap, probe (a cap while the node measures the origin), or client (one client has too many).", "class", "reason", "upstream"),
		info:        r.Gauges("weir_shedder_info", "1 for the active settings of the shedder. With enabled false, the kill switch is on.", "version", "source", "enabled"),
		rejected:    r.Counter("weir_shedder_rejected_total", "Shedder settings and pointers in Consul refused, each once."),
		cacheErrors: r.Counter("weir_shedder_cache_errors_total", "Failures to write or use shedder.cache."),
	}
}

type underLoadMetrics struct {
	followed, nodes, lowered *prometheus.GaugeVec
	wanted                   *prometheus.CounterVec
	alone                    prometheus.Gauge
}

func newUnderLoadMetrics(r metric.Registry) *underLoadMetrics {
	return &underLoadMetrics{
		followed: r.Gauges("weir_load_followed", "The region's utilization that limits under load follow; 0 while no rule does.", "upstream"),
		nodes:    r.Gauges("weir_load_nodes", "Nodes whose utilization contributes to weir_load_followed.", "upstream"),
		lowered:  r.Gauges("weir_rules_lowered", "Rules whose limits are lowered for requests to the group.", "upstream"),
		wanted:   r.Counters("weir_load_wanted_total", "Requests refused only because a limit was lowered; they count as demand.", "upstream"),
		alone:    r.Gauge("weir_load_alone", "1 while this node follows only its own load, because Redis does not answer or there is none."),
	}
}
