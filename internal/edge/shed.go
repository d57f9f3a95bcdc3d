package edge

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/weir-edge/weir/internal/edge/decide"
	"github.com/weir-edge/weir/pkg/shedder"
)

// shedSettings are the active settings with what counts their refusals, swapped as one.
// They are immutable.
type shedSettings struct {
	decide.Shedding
	counters map[shedLabels]prometheus.Counter
}

// shedLabels are the labels of weir_shed_total.
type shedLabels struct{ class, reason, upstream string }

// shed counts and logs a request that was shed.
func (e *Edge) shed(r *decide.Request, reason shedder.Reason) {
	e.metrics.countShed(e.shedding.active.Load(), reason)
	if skipped, ok := e.shedLog.Sample(r.Began); ok {
		e.log.Info("request shed", "class", reason.Class, "upstream", reason.Upstream, "kind", reason.Kind, "signal", reason.Signal,
			"value", reason.Value, "threshold", reason.Threshold, "utilization", reason.Utilization, "level", reason.Level,
			"version", reason.Version, "not_logged", skipped)
	}
}
