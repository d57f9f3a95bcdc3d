package load

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/weir-edge/weir/internal/edge/decide"
	"github.com/weir-edge/weir/internal/shedding"
	"github.com/weir-edge/weir/pkg/shedder"
)

// shedCollector reads the shedders when metrics are collected, so that series of removed
// signals, classes, candidates and groups disappear.
type shedCollector []*shedder.Shedder

var (
	utilizationDesc = shedDesc("utilization", "Utilization by a signal, 0 to 1: its value between the knees of the settings.", "signal", "upstream")
	signalUpDesc    = shedDesc("shed_signal_up", "1 while a signal that the settings name is measured, 0 while it is missing or stale and therefore ignored.", "signal", "upstream")
	signalDesc      = shedDesc("shed_signal_value", "The value of a signal, in its own unit; times are in seconds. Absent while it is missing or stale.", "signal", "upstream")
	kneeDesc        = shedDesc("shed_signal_knee", "The values at which utilization by a signal is 0 (low) and 1 (high) according to the settings, in the signal's unit.", "signal", "upstream", "knee")
	thresholdDesc   = shedDesc("shed_threshold", "The utilization at which shedding begins (start), and at which it is then held (target).", "upstream", "threshold")
	levelDesc       = shedDesc("shed_level", "How far shedding has gone: 0 is none, and each whole step sheds one more class.", "upstream")
	probabilityDesc = shedDesc("shed_probability", "Share of a class that the level sheds, 0 to 1.", "class", "upstream")
	inflightDesc    = shedDesc("inflight", "Requests between admission and the end of the exchange with the upstream.", "class", "upstream")
	inflightMaxDesc = shedDesc("inflight_max", "How many requests of all classes may be in flight before one of this class is refused.", "class", "upstream")
	autoKneeDesc    = shedDesc("shed_auto_knee", "The high knee of inflight that the node estimates, without bounds, whether or not the settings use it; 0 until requests have queued at the origin.", "upstream")
	fullRateDesc    = shedDesc("shed_full_rate", "Requests per second that the origin answers for this node while requests queue there; before any queue, the most that it has answered.", "upstream")
	baseDesc        = shedDesc("shed_base_seconds", "How long the origin takes for a request without a queue, as the node estimates; 0 until measured.", "upstream")
	probesDesc      = shedDesc("shed_probes_total", "Probes that drained requests in flight to measure the origin, by result: measured, or undecided because too much stayed in flight or too little was answered.", "upstream", "result")
	shadowKneeDesc  = shedDesc("shadow_knee", "The high knee of inflight under a candidate's settings.", "candidate", "upstream")
	shadowDesc      = shedDesc("shadow_shed_total", "Requests that a candidate would have shed. "+shedding.ShadowBias, "candidate", "class", "upstream")
)

func shedDesc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("weir_"+name, help, labels, nil)
}

// Describe implements prometheus.Collector.
func (c shedCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		utilizationDesc, signalUpDesc, signalDesc, kneeDesc, thresholdDesc, levelDesc, probabilityDesc, inflightDesc, inflightMaxDesc, autoKneeDesc, fullRateDesc, baseDesc, probesDesc, shadowKneeDesc, shadowDesc,
	} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c shedCollector) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	for _, sheds := range c {
		s := sheds.Status()
		gauge(levelDesc, s.Level, s.Name)
		gauge(thresholdDesc, s.Settings.Start, s.Name, "start")
		gauge(thresholdDesc, s.Settings.Target, s.Name, "target")
		for name := range s.Settings.Signals {
			knees := s.Settings.Knees(name, &s.Estimate)
			gauge(kneeDesc, knees.Low, name, s.Name, "low")
			gauge(kneeDesc, knees.High, name, s.Name, "high")
		}
		for _, signal := range s.Signals {
			up := signal.Problem == ""
			gauge(signalUpDesc, decide.OneIf(up), signal.Name, s.Name)
			if up {
				gauge(signalDesc, signal.Value, signal.Name, s.Name)
				gauge(utilizationDesc, signal.Utilization, signal.Name, s.Name)
			}
		}
		for _, class := range s.Classes {
			gauge(probabilityDesc, class.Probability, class.Name, s.Name)
			gauge(inflightDesc, float64(class.InFlight), class.Name, s.Name)
			gauge(inflightMaxDesc, float64(class.MaxInFlight), class.Name, s.Name)
		}
		c.estimate(ch, s.Name, &s)
		for _, candidate := range s.Candidates {
			if candidate.Knee > 0 {
				gauge(shadowKneeDesc, candidate.Knee, candidate.Name, s.Name)
			}
			for i, n := range candidate.Shed {
				if i < len(s.Classes) {
					ch <- prometheus.MustNewConstMetric(shadowDesc, prometheus.CounterValue, float64(n), candidate.Name, s.Classes[i].Name, s.Name)
				}
			}
		}
	}
}

// estimate exports what the node has learned about a group's origin.
func (c shedCollector) estimate(ch chan<- prometheus.Metric, group string, s *shedder.Status) {
	e := &s.Estimate
	ch <- prometheus.MustNewConstMetric(autoKneeDesc, prometheus.GaugeValue, e.High(s.Settings.Target), group)
	ch <- prometheus.MustNewConstMetric(fullRateDesc, prometheus.GaugeValue, e.Rate, group)
	ch <- prometheus.MustNewConstMetric(baseDesc, prometheus.GaugeValue, e.Base, group)
	ch <- prometheus.MustNewConstMetric(probesDesc, prometheus.CounterValue, float64(e.Probes), group, "measured")
	ch <- prometheus.MustNewConstMetric(probesDesc, prometheus.CounterValue, float64(e.Undecided), group, "undecided")
}

// expect creates the counters of what these settings may shed, so that counting
// allocates nothing.
func (m *shedMetrics) expect(s *shedSettings, settings *shedder.Settings, group string) {
	for _, class := range settings.Classes {
		reasons := []string{shedder.KindCap, shedder.KindUploads}
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

func newShedMetrics(registry *prometheus.Registry) *shedMetrics {
	auto := promauto.With(registry)
	return &shedMetrics{
		shed:        auto.NewCounterVec(prometheus.CounterOpts{Name: "weir_shed_total", Help: "Requests refused with 503 by the load shedder, by class, by the signal that caused it, or the kind of cap, and by upstream group."}, []string{"class", "reason", "upstream"}),
		info:        auto.NewGaugeVec(prometheus.GaugeOpts{Name: "weir_shedder_info", Help: "1 for the version of the shedder's settings that this node runs, where they came from, and whether they are enabled: without, it sheds nothing."}, []string{"version", "source", "enabled"}),
		rejected:    auto.NewCounter(prometheus.CounterOpts{Name: "weir_shedder_rejected_total", Help: "Documents of shedder settings in Consul, and pointers, refused; the previous settings stayed active."}),
		cacheErrors: auto.NewCounter(prometheus.CounterOpts{Name: "weir_shedder_cache_errors_total", Help: "Failures to write the last good shedder settings to disk, or to use those found there."}),
	}
}

type underLoadMetrics struct {
	followed, nodes, lowered *prometheus.GaugeVec
	wanted                   *prometheus.CounterVec
	alone                    prometheus.Gauge
}

func newUnderLoadMetrics(registry *prometheus.Registry) *underLoadMetrics {
	auto := promauto.With(registry)
	gauges := func(name, help string) *prometheus.GaugeVec {
		return auto.NewGaugeVec(prometheus.GaugeOpts{Name: "weir_" + name, Help: help}, []string{"upstream"})
	}
	return &underLoadMetrics{
		followed: gauges("load_followed", "The utilization of an upstream group that limits with under_load follow; 0 while no rule does."),
		nodes:    gauges("load_nodes", "Nodes of the region that contribute to this utilization."),
		lowered:  gauges("rules_lowered", "Rules whose limits are lowered for requests to the group."),
		wanted:   auto.NewCounterVec(prometheus.CounterOpts{Name: "weir_load_wanted_total", Help: "Requests refused only because a limit was lowered; they stay demand."}, []string{"upstream"}),
		alone:    auto.NewGauge(prometheus.GaugeOpts{Name: "weir_load_alone", Help: "1 while limits with under_load follow the load of this node alone, 0 while they follow the region's."}),
	}
}
