package ctl

import (
	"bytes"
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-edge/weir/internal/ctl/fleet"
	"github.com/weir-edge/weir/internal/ctl/term"
	"github.com/weir-edge/weir/pkg/region"
)

const statusHelp = `Shows the whole fleet on one screen: each region with its PoPs, and each PoP with its
edges: whether it passes its check in Consul, the versions of rules and shedder settings
that it runs, how busy it is (the highest signal of its shedder, 0 to 1), how far it sheds
(0: nothing, each whole step is one class more), requests a second and the share of them
that rules refused, over the last interval, and whether its Redis answers.

A PoP is serving if one of its edges passes and nobody has drained it. What DNS answers also
depends on the past: regionctl dns explain shows it.

Edges are asked at their admin listeners, each for at most --timeout, or the interval of
--watch if that is less. For one that does not answer, status shows what Consul knows.

--watch looks again every second until interrupted; --watch=5s every five. With
-o json each look is one line.

Exits with 0, or with 3 if a region did not answer.`

// apart is how far the two looks are apart that a rate is made of.
const apart = time.Second

func (p *program) statusCommand() *cobra.Command {
	var names []string
	var every time.Duration
	c := command("status", "show the whole fleet on one screen", statusHelp,
		`  regionctl status
  regionctl status --watch
  regionctl status -o json | jq '.regions[].pops[] | select(.serving | not) | .pop'`,
		func(ctx context.Context, _ []string) error { return p.status(ctx, names, every) })
	p.regionFlag(c, &names)
	watchFlag(c, &every, "1s")
	return c
}

// fleetStatus is what status prints with -o json.
type fleetStatus struct {
	At time.Time `json:"at"`
	// Topology says whether there is one. Without it no router answers for any PoP.
	Topology bool           `json:"topology"`
	Regions  []regionStatus `json:"regions"`
	Totals   statusTotals   `json:"totals"`
}

// regionStatus is one region of it.
type regionStatus struct {
	Region string      `json:"region"`
	Error  string      `json:"error,omitempty"` // why its Consul does not tell
	PoPs   []popStatus `json:"pops"`
}

// popStatus is one PoP.
type popStatus struct {
	PoP     string        `json:"pop"`
	Serving bool          `json:"serving"`
	Drained *region.Drain `json:"drained"`
	Listed  bool          `json:"in_topology"`
	Passing int           `json:"passing"`
	Nodes   []nodeStatus  `json:"nodes"`
}

// nodeStatus is one edge. What was not measured is null.
type nodeStatus struct {
	ID          string   `json:"id"`
	Passing     bool     `json:"passing"`
	Output      string   `json:"output,omitempty"`
	Rules       string   `json:"rules_version"`
	Shedder     string   `json:"shedder_version"`
	Utilization *float64 `json:"utilization"`
	ShedLevel   *float64 `json:"shed_level"`
	Rate        *float64 `json:"requests_per_second"`
	Limited     *float64 `json:"limited_share"`
	StoreUp     *bool    `json:"store_up"`
	Error       string   `json:"error,omitempty"` // why the edge itself was not asked

	interval fleet.Interval
}

// statusTotals are over all.
type statusTotals struct {
	Regions   int     `json:"regions"`
	Unknown   int     `json:"regions_unknown"`
	PoPs      int     `json:"pops"`
	Serving   int     `json:"pops_serving"`
	Drained   int     `json:"pops_drained"`
	Nodes     int     `json:"nodes"`
	Passing   int     `json:"nodes_passing"`
	StoreDown int     `json:"nodes_without_store"`
	Shedding  int     `json:"nodes_shedding"`
	Rate      float64 `json:"requests_per_second"`
	Limited   float64 `json:"limited_share"`
}

// statusLook looks at the fleet again and again.
type statusLook struct {
	p       *program
	targets []*fleet.Target
	limit   time.Duration             // for one node
	before  map[string]*fleet.Figures // by region and node
}

func (p *program) status(ctx context.Context, names []string, every time.Duration) error {
	if err := checkWatch(every); err != nil {
		return err
	}
	targets, err := p.targets(names)
	if err != nil {
		return err
	}
	l := &statusLook{p: p, targets: targets, limit: p.timeout, before: map[string]*fleet.Figures{}}
	if every > 0 {
		l.limit = min(p.timeout, max(every, 500*time.Millisecond))
		return p.watch(ctx, every, func(ctx context.Context) (any, func(*bytes.Buffer, term.Style)) {
			v, _ := l.look(ctx)
			return v, v.write
		})
	}
	_, _ = l.look(ctx)
	select { // a rate is the difference of two looks
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(apart):
	}
	v, answers := l.look(ctx)
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := p.Show(v, v.write); err != nil {
		return err
	}
	return unanswered(answers)
}

// look asks all Consuls, and then all edges, at once.
func (l *statusLook) look(ctx context.Context) (*fleetStatus, []fleet.Answer[*sites]) {
	v := &fleetStatus{At: time.Now().UTC()}
	answers := fleet.Ask(ctx, l.targets, siteOf)
	var nodes []nodeAt
	for _, a := range answers {
		if a.Err == nil {
			for _, n := range a.Value.nodes {
				nodes = append(nodes, nodeAt{a.Target, n})
			}
		}
	}
	found := make([]nodeStatus, len(nodes))
	read := make([]*fleet.Figures, len(nodes))
	bounded, cancel := context.WithTimeout(ctx, l.limit)
	defer cancel()
	fleet.Each(nodes, func(i int, n nodeAt) { found[i], read[i] = l.node(bounded, n) })
	next := map[string]*fleet.Figures{}
	for i, n := range nodes {
		if read[i] != nil {
			next[n.target.Name+" "+n.node.ID] = read[i]
		}
	}
	l.before = next
	drains, topology := overall(answered(answers))
	v.Topology = topology != nil
	for _, a := range answers {
		place := regionStatus{Region: a.Target.Name, PoPs: []popStatus{}}
		if a.Err != nil {
			place.Error = a.Err.Error()
		}
		pops := map[string]*popStatus{}
		var order []string
		add := func(name string, listed bool) *popStatus {
			if pops[name] == nil {
				pops[name] = &popStatus{PoP: name, Drained: drains[name], Nodes: []nodeStatus{}}
				order = append(order, name)
			}
			pops[name].Listed = pops[name].Listed || listed
			return pops[name]
		}
		if topology != nil {
			if i := slices.IndexFunc(topology.Regions, func(r region.TopologyRegion) bool { return r.Name == a.Target.Name }); i >= 0 {
				for _, p := range topology.Regions[i].PoPs {
					add(p.Name, true)
				}
			}
		}
		for i, n := range nodes {
			if n.target != a.Target {
				continue
			}
			p := add(n.node.PoP, false)
			p.Nodes = append(p.Nodes, found[i])
			if n.node.Passing {
				p.Passing++
			}
		}
		for _, name := range order {
			p := pops[name]
			p.Serving = p.Listed && p.Passing > 0 && p.Drained == nil
			place.PoPs = append(place.PoPs, *p)
		}
		v.Regions = append(v.Regions, place)
	}
	v.total()
	return v, answers
}

// overall is what counts for the fleet: a drain by any region's word, the oldest, and
// the first topology that there is.
func overall(list []*sites) (map[string]*region.Drain, *region.Topology) {
	drains, all := map[string]*region.Drain{}, drainsOf(list)
	var topology *region.Topology
	for _, s := range list {
		topology = cmp.Or(topology, s.topology)
		for name := range s.drains.Begun {
			if d := region.Oldest(name, all, region.Ended(name, all)); d != nil {
				drains[name] = d
			}
		}
	}
	return drains, topology
}

// node asks one edge, and takes what Consul knows where it does not answer.
func (l *statusLook) node(ctx context.Context, n nodeAt) (nodeStatus, *fleet.Figures) {
	v := nodeStatus{ID: n.node.ID, Passing: n.node.Passing, Rules: n.node.RulesVersion, Shedder: n.node.ShedderVersion}
	if !v.Passing {
		v.Output = strings.Join(strings.Fields(n.node.Output), " ")
	}
	f, err := n.target.Admin.Figures(ctx, n.node)
	if err != nil {
		v.Error = err.Error()
		return v, nil
	}
	v.Rules, v.Shedder, v.Utilization, v.ShedLevel, v.StoreUp = f.Rules, f.Shedder, &f.Utilization, &f.Level, f.StoreUp
	if before := l.before[n.target.Name+" "+n.node.ID]; before != nil {
		v.interval = f.Since(before)
		v.Rate = &v.interval.Rate
		share := fleet.Ratio(v.interval.Limited, v.interval.Requests)
		v.Limited = &share
	}
	return v, f
}

// total adds up.
func (v *fleetStatus) total() {
	t := &v.Totals
	var limited, requests float64
	for _, r := range v.Regions {
		t.Regions++
		if r.Error != "" {
			t.Unknown++
		}
		for _, p := range r.PoPs {
			t.PoPs++
			if p.Serving {
				t.Serving++
			}
			if p.Drained != nil {
				t.Drained++
			}
			for _, n := range p.Nodes {
				t.Nodes++
				if n.Passing {
					t.Passing++
				}
				if n.StoreUp != nil && !*n.StoreUp {
					t.StoreDown++
				}
				if n.ShedLevel != nil && *n.ShedLevel > 0 {
					t.Shedding++
				}
				t.Rate += n.interval.Rate
				limited += n.interval.Limited
				requests += n.interval.Requests
			}
		}
	}
	t.Limited = fleet.Ratio(limited, requests)
}
