package admin

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/weir-edge/weir/internal/adminapi"
	"github.com/weir-edge/weir/internal/edge/exchange"
	"github.com/weir-edge/weir/pkg/limiter"
	"github.com/weir-edge/weir/pkg/limiter/global"
	"github.com/weir-edge/weir/pkg/limiter/rules"
)

// showGlobal shows what this node knows of other regions under rules that regions share.
func (a *Admin) showGlobal(w http.ResponseWriter, _ *http.Request) {
	running, ok := a.runningRules(w)
	if !ok {
		return
	}
	out := adminapi.Global{Node: a.Config.Node.ID, Region: a.Config.Node.Region, Others: []adminapi.GlobalRegion{}, Rules: []adminapi.GlobalRule{}}
	used, held := map[string]exchange.Usage{}, map[string]int64{}
	switch {
	case a.Exchange == nil:
		out.Alone = "listen.peer is not set"
	case len(a.Regions()) < 2:
		out.Alone = "no other region is known"
	default:
		for region, lag := range a.Exchange.Lags() {
			out.Others = append(out.Others, adminapi.GlobalRegion{Region: region, Lag: lag.Round(time.Millisecond).String()})
		}
		slices.SortFunc(out.Others, func(a, b adminapi.GlobalRegion) int { return cmp.Compare(a.Region, b.Region) })
		out.Delay = a.Exchange.Delay().Round(time.Millisecond).String()
	}
	if a.Exchange != nil {
		var refused int64
		out.Kept, out.Traveling, refused = a.Exchange.Keys()
		out.Uncounted, out.Parts = a.Chain.Tallies.Uncounted()+refused, a.Exchange.Parts()
		held = a.Exchange.RightsHeld()
		for _, u := range a.Exchange.Usages() {
			used[u.Rule] = u
		}
	}
	for _, c := range running.Set().Rules() {
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

// explainGlobal returns what regions know of each other's counts of a key.
func (a *Admin) explainGlobal(ctx context.Context, c *limiter.Check) *adminapi.GlobalCounts {
	if c.Limit.Global == nil {
		return nil
	}
	v := &adminapi.GlobalCounts{Regions: 1, Others: map[string]int64{}}
	if a.Exchange == nil {
		return v
	}
	now, width := time.Now().UnixMicro(), global.Width(c.Limit)
	own, others, err := a.Chain.Counters.Counters(ctx, c.Key, now-now%width)
	if err == nil {
		v.Own, v.Others = own, others
	}
	if c.Limit.Global.Escrow {
		v.Regions = len(a.Regions())
		v.Escrow = &adminapi.EscrowRights{}
		v.Escrow.Part, v.Escrow.Left, err = a.Exchange.Right(ctx, c.Limit, string(c.Key))
		if err != nil {
			v.Escrow.Error = err.Error()
		}
		return v
	}
	delay := a.Exchange.Delay() + c.Limit.LeaseTime()
	v.Regions, v.Delay = len(a.Regions()), delay.Round(time.Millisecond).String()
	over := global.OvershootBounds(c.Limit, v.Regions, limiter.BoundDemand, delay)
	v.Demand, v.Worst = over.Demand, over.Worst
	return v
}
