package edge

import (
	"log/slog"
	"time"

	"github.com/weir-edge/weir/internal/adminapi"
	"github.com/weir-edge/weir/internal/edge/decide"
	"github.com/weir-edge/weir/internal/policy"
	"github.com/weir-edge/weir/pkg/behavior"
)

// riskHeader tells the origin how the policy judges a client. An origin would believe a
// client that sends it, so it is always removed when there is a policy.
const riskHeader = "Weir-Risk"

func modeOf(p *policy.Policy) string {
	if p.Shadow {
		return policy.Shadow
	}
	return policy.Enforce
}

// judged counts a request of a subject above the mildest tier.
func (k *conductKeeper) judged(r *decide.Request) {
	k.metrics.conductRequests.WithLabelValues(r.Risk.Name(), string(r.Risk.Effect), modeOf(r.Risk.Policy)).Inc()
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
	list := []any{"kind", rise.Kind, "tier", rise.Tier, "score", int(rise.Score), "by", "node", "mode", modeOf(r.Risk.Policy), "client", r.Client.String(), "not_logged", skipped}
	if rise.Shared {
		list[7] = "region" // from the counts of several nodes
	}
	if rise.Kind == decide.KindRoute {
		list = append(list, "route", string(r.Route()))
	}
	if key := r.Subject(); key != "" {
		list = append(list, "subject", key)
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

// explain returns the standing of the client of a described request.
func (k *conductKeeper) explain(asked *decide.Request) *adminapi.Conduct {
	st, reasons, judged := k.Explain(asked, time.Now())
	p := k.active.Load()
	if p == nil {
		return nil
	}
	out := &adminapi.Conduct{PolicyVersion: p.Version, Mode: modeOf(p), Exempt: !judged}
	if !judged {
		return out
	}
	effects := func(tier int) *policy.Effect { return &p.Effects[min(tier, len(p.Effects)-1)] }
	e := effects(st.Tier)
	out.Tier, out.Score, out.Signals = e.Name, st.Score, signals(reasons)
	if st.Refused > 0 {
		out.RefusedFor = st.Refused.String()
	}
	if route, reasons, judged := k.ExplainRoute(asked, time.Now()); judged && route.Tier > 0 {
		of := effects(route.Tier)
		out.Route = &adminapi.RouteConduct{Tier: of.Name, Score: route.Score, Signals: signals(reasons)}
		if route.Tier > st.Tier {
			e = of
		}
	}
	out.Limits = e.Limits
	if e.Delay > 0 {
		out.Delay = e.Delay.String()
	}
	return out
}

func signals(reasons []behavior.Reason) (list []adminapi.ConductSignal) {
	for _, r := range reasons {
		list = append(list, adminapi.ConductSignal{Signal: r.Signal.String(), Points: r.Points, Value: r.Value, Threshold: r.Threshold})
	}
	return list
}
