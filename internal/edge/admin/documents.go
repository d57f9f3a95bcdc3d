package admin

import (
	"net/http"
	"time"

	"github.com/weir-edge/weir/internal/adminapi"
	"github.com/weir-edge/weir/internal/edge/decide"
	"github.com/weir-edge/weir/internal/policy"
)

func (a *Admin) showPolicy(w http.ResponseWriter, _ *http.Request) {
	v := adminapi.Policy{Node: a.Config.Node.ID, Source: adminapi.NoVersion}
	if k := a.Policy; k != nil {
		s := k.State()
		v.Source, v.Canary, v.Stale, v.Pointer, v.Refused = s.Source(), s.Canary, s.Stale, s.Pointer, s.Refused
		if s.Active != nil {
			v.Version, v.Mode, v.Since = s.Version(), s.Active.Compiled.Mode(), s.Since.UTC()
		}
		v.Consul, v.Cache, v.Signature = k.ConsulState.View(), k.CacheState.View(), k.SignatureState.View()
	}
	writeJSON(w, http.StatusOK, v)
}

// showClients shows which networks are active.
func (a *Admin) showClients(w http.ResponseWriter, _ *http.Request) {
	v := adminapi.Clients{Node: a.Config.Node.ID, Source: adminapi.NoVersion}
	if k := a.Clients; k != nil {
		t, s := a.Decider.ClientLists(), k.State()
		v.Version, v.Blocks, v.Allows, v.Next = t.Version, t.Blocks, t.Allows, t.Next
		v.Source, v.Since = s.Source(), s.Since.UTC()
		v.Consul, v.Cache = k.ConsulState.View(), k.CacheState.View()
	}
	writeJSON(w, http.StatusOK, v)
}

// behavior returns the standing of the client of a described request.
func (a *Admin) behavior(described *decide.Request) *adminapi.Behavior {
	k := a.Decider.Behavior
	st, reasons, judged := k.Explain(described, time.Now())
	p := k.Policy()
	if p == nil {
		return nil
	}
	out := &adminapi.Behavior{PolicyVersion: p.Version, Mode: p.Mode(), Exempt: !judged}
	if !judged {
		return out
	}
	effects := func(tier int) *policy.Effect { return &p.Effects[min(tier, len(p.Effects)-1)] }
	e := effects(st.Tier)
	out.Tier, out.Score, out.Signals = e.Name, st.Score, adminapi.BehaviorSignals(reasons)
	if st.Refused > 0 {
		out.RefusedFor = st.Refused.String()
	}
	if route, reasons, judged := k.ExplainRoute(described, time.Now()); judged && route.Tier > 0 {
		of := effects(route.Tier)
		out.Route = &adminapi.RouteBehavior{Tier: of.Name, Score: route.Score, Signals: adminapi.BehaviorSignals(reasons)}
		if route.Tier > st.Tier && !st.Proven {
			e = of
		}
	}
	out.Limits = e.Limits
	if e.Delay > 0 {
		out.Delay = e.Delay.String()
	}
	return out
}
