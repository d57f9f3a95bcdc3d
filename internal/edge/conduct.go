package edge

import (
	"log/slog"
	"time"

	"github.com/weir-edge/weir/internal/edge/decide"
	"github.com/weir-edge/weir/pkg/behavior"
)

// riskHeader tells the origin how the policy judges a client. An origin would believe a
// client that sends it, so it is always removed when there is a policy.
const riskHeader = "Weir-Risk"

// judged counts a request of a subject above the mildest tier.
func (k *conductKeeper) judged(r *decide.Request) {
	k.metrics.conductRequests.WithLabelValues(r.Risk.Name(), string(r.Risk.Effect), r.Risk.Policy.Mode()).Inc()
}

// rose counts and logs a subject that entered a severer tier, and why.
func (k *conductKeeper) rose(r *decide.Request, rise *decide.Rise) {
	if !rise.Shared {
		k.metrics.conductRises.WithLabelValues(rise.Kind, rise.Tier).Inc()
		k.countSignals(rise.Kind, rise.Tier, rise.Reasons)
	}
	skipped, ok := k.rises.Sample(time.Now())
	if !ok {
		return
	}
	list := []any{"kind", rise.Kind, "tier", rise.Tier, "score", int(rise.Score), "by", "node", "mode", r.Risk.Policy.Mode(), "client", r.Client.String(), "not_logged", skipped}
	if rise.Shared {
		list[7] = "region" // from the counts of several nodes
	}
	if rise.Kind == decide.KindRoute {
		list = append(list, "route", string(r.Route()))
	}
	if key := r.Subject(); key != "" {
		list = append(list, "subject", key)
	}
	if r.CrossSite() {
		list = append(list, "cross_site", true)
	}
	for _, reason := range rise.Reasons {
		list = append(list, slog.Group(reason.Signal.String(), "points", int(reason.Points), "value", reason.Value, "threshold", reason.Threshold))
	}
	k.log.Info("subject entered a severer tier", list...)
}

func (k *conductKeeper) countSignals(kind, tier string, reasons []behavior.Reason) {
	for _, reason := range reasons {
		k.metrics.conductSignals.WithLabelValues(kind, tier, reason.Signal.String()).Inc()
	}
}

// learn counts a finished request.
func (r *request) learn() {
	if k := r.edge.conduct; k != nil {
		status := 0
		if r.answered {
			status = r.ctx.Response.StatusCode()
		}
		k.Learn(&r.Request, r.verdict, status, time.Now())
	}
}

// risk tells the origin how the policy judges the client.
func (r *request) risk() {
	if r.edge.conduct == nil {
		return
	}
	header := &r.ctx.Request.Header
	header.Del(riskHeader)
	if r.buf = r.edge.conduct.AppendRisk(r.buf[:0], &r.Request); len(r.buf) > 0 {
		header.SetBytesV(riskHeader, r.buf)
	}
}
