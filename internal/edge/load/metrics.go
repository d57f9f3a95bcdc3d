package load

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/weir-edge/weir/internal/metric"
	"github.com/weir-edge/weir/internal/shedding"
	"github.com/weir-edge/weir/pkg/shedder"
)

var (
	utilizationDesc = metric.ReadGauge("weir_utilization", "Utilization by a signal, 0 to 1: its value between the knees of the settings.", "signal", "upstream")
	signalUpDesc    = metric.ReadGauge("weir_shed_signal_up", "1 while a signal that the settings name is measured, 0 while it is missing or stale and therefore ignored.", "signal", "upstream")
	signalDesc      = metric.ReadGauge("weir_shed_signal_value", "The value of a signal, in its own unit; times are in seconds. Absent while it is missing or stale.", "signal", "upstream")
	kneeDesc        = metric.ReadGauge("weir_shed_signal_knee", "The values at which utilization by a signal is 0 (low) and 1 (high) according to the settings, in the signal's unit.", "signal", "upstream", "knee")
	thresholdDesc   = metric.ReadGauge("weir_shed_threshold", "The utilization at which shedding begins (start), and at which it is then held (target).", "upstream", "threshold")
	levelDesc       = metric.ReadGauge("weir_shed_level", "How far shedding has gone: 0 is none, and each whole step sheds one more class.", "upstream")
	probabilityDesc = metric.ReadGauge("weir_shed_probability", "Share of a class that the level sheds, 0 to 1.", "class", "upstream")
	inflightDesc    = metric.ReadGauge("weir_inflight", "Requests between admission and the end of the exchange with the upstream.", "class", "upstream")
	inflightMaxDesc = metric.ReadGauge("weir_inflight_max", "How many requests of all classes may be in flight before one of this class is refused.", "class", "upstream")
	autoKneeDesc    = metric.ReadGauge("weir_shed_auto_knee", "The high knee of inflight that the node estimates, without bounds, whether or not the settings use it; 0 until requests have queued at the origin.", "upstream")
	fullRateDesc    = metric.ReadGauge("weir_shed_full_rate", "Requests per second that the origin answers for this node while requests queue there; before any queue, the most that it has answered.", "upstream")
	baseDesc        = metric.ReadGauge("weir_shed_base_seconds", "How long the origin takes for a request without a queue, as the node estimates; 0 until measured.", "upstream")
	probesDesc      = metric.ReadCounter("weir_shed_probes_total", "Probes that drained requests in flight to measure the origin, by result: measured, or undecided because too much stayed in flight or too little was answered.", "upstream", "result")
	shadowKneeDesc  = metric.ReadGauge("weir_shadow_knee", "The high knee of inflight under a candidate's settings.", "candidate", "upstream")
	shadowDesc      = metric.ReadCounter("weir_shadow_shed_total", "Requests that a candidate would have shed. "+shedding.ShadowBias, "candidate", "class", "upstream")
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
		shed:        r.Counters("weir_shed_total", "Requests refused with 503 by the load shedder, by class, by the signal that caused it, or the kind of cap, and by upstream group.", "class", "reason", "upstream"),
		info:        r.Gauges("weir_shedder_info", "1 for the version of the shedder's settings that this node runs, where they came from, and whether they are enabled: without, it sheds nothing.", "version", "source", "enabled"),
		rejected:    r.Counter("weir_shedder_rejected_total", "Documents of shedder settings in Consul, and pointers, refused; the previous settings stayed active."),
		cacheErrors: r.Counter("weir_shedder_cache_errors_total", "Failures to write the last good shedder settings to disk, or to use those found there."),
	}
}

type underLoadMetrics struct {
	followed, nodes, lowered *prometheus.GaugeVec
	wanted                   *prometheus.CounterVec
	alone                    prometheus.Gauge
}

func newUnderLoadMetrics(r metric.Registry) *underLoadMetrics {
	return &underLoadMetrics{
		followed: r.Gauges("weir_load_followed", "The utilization of an upstream group that limits with under_load follow; 0 while no rule does.", "upstream"),
		nodes:    r.Gauges("weir_load_nodes", "Nodes of the region that contribute to this utilization.", "upstream"),
		lowered:  r.Gauges("weir_rules_lowered", "Rules whose limits are lowered for requests to the group.", "upstream"),
		wanted:   r.Counters("weir_load_wanted_total", "Requests refused only because a limit was lowered; they stay demand.", "upstream"),
		alone:    r.Gauge("weir_load_alone", "1 while limits with under_load follow the load of this node alone, 0 while they follow the region's."),
	}
}
