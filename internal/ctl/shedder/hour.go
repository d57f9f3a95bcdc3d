package shedder

import (
	"context"

	"github.com/weir-edge/weir/internal/ctl/command"
	"github.com/weir-edge/weir/internal/ctl/hour"
	"github.com/weir-edge/weir/internal/ctl/kinds"
	"github.com/weir-edge/weir/pkg/shedder"
)

// Hour is what Prometheus has of the last hour.
type Hour struct {
	hour.Last
	// Upstreams are the upstream groups of the edges that Prometheus scrapes, by region/node/upstream.
	Upstreams map[string]*UpstreamHour `json:"upstreams"`
}

// UpstreamHour is the last hour of an upstream group of one edge.
type UpstreamHour struct {
	// Shed are the requests that were shed, by class.
	Shed map[string]ShedHour `json:"shed"`
	// PerSecond are the requests shed per second in each minute of it, the oldest first, and Candidates
	// those that each candidate would have shed.
	PerSecond  []float64            `json:"per_second"`
	Candidates map[string][]float64 `json:"candidates"`
}

// ShedHour is what was shed of one class.
type ShedHour struct {
	ByLevel float64 `json:"shed_by_level"`
	ByCap   float64 `json:"shed_by_cap"`
}

// LastHour asks Prometheus for the last hour of these regions.
func LastHour(ctx context.Context, p *command.Program, names []string) (*Hour, error) {
	h := &Hour{hour.Of(p, kinds.Shedder, names), map[string]*UpstreamHour{}}
	upstream := func(of map[string]string) *UpstreamHour {
		id := idOf(of["region"], of["node"], of["upstream"])
		if h.Upstreams[id] == nil {
			h.Upstreams[id] = &UpstreamHour{map[string]ShedHour{}, make([]float64, hour.Minutes), map[string][]float64{}}
		}
		return h.Upstreams[id]
	}
	const metric, by = "weir_shed_total", "region, node, upstream"
	const overload = `,reason!="` + shedder.KindClient + `"` // one client has too many in flight
	h.Total(ctx, metric, overload, by+", class, reason", func(of map[string]string, n float64) {
		list := upstream(of).Shed
		shed := list[of["class"]]
		switch of["reason"] {
		case shedder.KindCap, shedder.KindProbe:
			shed.ByCap += n
		default: // a signal
			shed.ByLevel += n
		}
		list[of["class"]] = shed
	})
	h.PerSecond(ctx, metric, overload, by, func(of map[string]string, rates []float64) { upstream(of).PerSecond = rates })
	h.PerSecond(ctx, "weir_shadow_shed_total", "", by+", candidate", func(of map[string]string, rates []float64) {
		upstream(of).Candidates[of["candidate"]] = rates
	})
	if err := h.Err(); err != nil {
		return nil, err
	}
	return h, nil
}

func idOf(region, node, upstream string) string { return region + "/" + node + "/" + upstream }
