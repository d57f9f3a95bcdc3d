package edge

import (
	"cmp"
	"net/http"
	"slices"
	"time"

	"github.com/weir-edge/weir/internal/adminapi"
	"github.com/weir-edge/weir/internal/edge/across"
	"github.com/weir-edge/weir/pkg/limiter"
	"github.com/weir-edge/weir/pkg/limiter/rules"
)

// showGlobal shows what this node knows of other regions under rules that regions share.
func (e *Edge) showGlobal(w http.ResponseWriter, _ *http.Request) {
	running, ok := e.runningRules(w)
	if !ok {
		return
	}
	out := adminapi.Global{Node: e.config.Node.ID, Region: e.config.Node.Region, Others: []adminapi.GlobalRegion{}, Rules: []adminapi.GlobalRule{}}
	used, held := map[string]across.Usage{}, map[string]int64{}
	switch {
	case e.across == nil:
		out.Alone = "listen.peer is not set"
	case len(e.listeners.Peers.Directory.Regions()) < 2:
		out.Alone = "no other region is known"
	default:
		for region, lag := range e.across.Lags() {
			out.Others = append(out.Others, adminapi.GlobalRegion{Region: region, Lag: lag.Round(time.Millisecond).String()})
		}
		slices.SortFunc(out.Others, func(a, b adminapi.GlobalRegion) int { return cmp.Compare(a.Region, b.Region) })
		out.Delay = e.across.Delay().Round(time.Millisecond).String()
	}
	if e.across != nil {
		var refused int64
		out.Kept, out.Traveling, refused = e.across.Keys()
		out.Uncounted, out.Parts = e.chain.Tallies.Uncounted()+refused, e.across.Parts()
		held = e.across.RightsHeld()
		for _, u := range e.across.Usages() {
			used[u.Rule] = u
		}
	}
	for _, c := range running.set.Rules() {
		g := c.Limit.Global
		if g == nil || c.Mode == rules.Off {
			continue
		}
		u := used[c.ID]
		burst := int64(0)
		if c.Limit.Algorithm == limiter.TokenBucket {
			burst = c.Limit.Burst
		}
		out.Rules = append(out.Rules, adminapi.GlobalRule{
			Rule: c.ID, Limit: c.Limit.Limit, Window: c.Limit.Window.String(), Burst: burst, Escrow: g.Escrow, Partition: g.OnPartition.String(),
			Overshoot: u.Overshoot, Bound: u.Bound, Rights: held[c.ID],
		})
	}
	writeJSON(w, http.StatusOK, out)
}
