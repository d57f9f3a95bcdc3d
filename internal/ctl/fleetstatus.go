package ctl

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-edge/weir/pkg/region"
)

const fleetStatusHelp = `Shows the whole fleet on one screen: each region with its PoPs, and each PoP with its
edges: whether it passes its check in Consul, the versions of rules and shedder settings
that it runs, how busy it is (the highest signal of its shedder, 0 to 1), how far it sheds
(0: nothing, each whole step is one class more), requests a second and the share of them
that rules refused, over the last interval, and whether its Redis answers.

A PoP is serving if an edge of it passes and nobody has drained it; what DNS makes of that
also depends on the past: regionctl dns explain tells.

Edges are asked at their admin listeners, each for at most --timeout, or the interval of
--watch if that is less. Of one that does not answer only what Consul knows is shown.

--watch looks again every second until it is interrupted; --watch=5s every five. With
-o json each look is one line.

Exits with 0, or with 3 if a region did not answer.`

// apart is how far the two looks are apart that a rate is made of.
const apart = time.Second

func (p *program) fleetStatusCommand() *cobra.Command {
	var names []string
	var every time.Duration
	c := command("status", "show the whole fleet on one screen", fleetStatusHelp,
		`  regionctl status
  regionctl status --watch
  regionctl status -o json | jq '.regions[].pops[] | select(.serving | not) | .pop'`,
		func(ctx context.Context, _ []string) error { return p.fleetStatus(ctx, names, every) })
	p.regionFlag(c, &names)
	watchFlag(c, &every, "1s")
	return c
}

// fleetView is what status prints with -o json.
type fleetView struct {
	At      time.Time    `json:"at"`
	Regions []fleetPlace `json:"regions"`
	Totals  fleetTotals  `json:"totals"`
}

// fleetPlace is one region of it.
type fleetPlace struct {
	Region string     `json:"region"`
	Error  string     `json:"error,omitempty"` // why its Consul does not tell
	PoPs   []fleetPoP `json:"pops"`
}

// fleetPoP is one PoP.
type fleetPoP struct {
	PoP     string        `json:"pop"`
	Serving bool          `json:"serving"`
	Drained *region.Drain `json:"drained"`
	Listed  bool          `json:"in_topology"`
	Passing int           `json:"passing"`
	Nodes   []fleetNode   `json:"nodes"`
}

// fleetNode is one edge. What was not measured is null.
type fleetNode struct {
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

	interval interval
}

// fleetTotals are over all.
type fleetTotals struct {
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

// fleetLook looks at the fleet again and again.
type fleetLook struct {
	p       *program
	targets []*target
	limit   time.Duration       // for one node
	before  map[string]*figures // by region and node
}

func (p *program) fleetStatus(ctx context.Context, names []string, every time.Duration) error {
	if every < 0 || every > 0 && every < 100*time.Millisecond {
		return misused("--watch %s: must be at least 100ms", every)
	}
	targets, closeAll, err := p.targets(names)
	if err != nil {
		return err
	}
	defer closeAll()
	l := &fleetLook{p: p, targets: targets, limit: p.timeout, before: map[string]*figures{}}
	if every > 0 {
		l.limit = min(p.timeout, max(every, 500*time.Millisecond))
		return l.watch(ctx, every)
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
	if err := p.show(v, func(b *bytes.Buffer, s style) { v.write(b, s) }); err != nil {
		return err
	}
	return unanswered(answers)
}

// watch looks until it is told to stop, which is how it is meant to end.
func (l *fleetLook) watch(ctx context.Context, every time.Duration) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		v, _ := l.look(ctx)
		if ctx.Err() != nil {
			return nil
		}
		var b bytes.Buffer
		switch {
		case l.p.wantsJSON():
			if err := encode(&b, v, ""); err != nil {
				return err
			}
		case l.p.outLive: // home, and each line over the one before: nothing flickers
			var text bytes.Buffer
			v.write(&text, l.p.outStyle())
			b.WriteString("\x1b[H" + strings.ReplaceAll(text.String(), "\n", "\x1b[K\n") + "\x1b[J")
		default:
			v.write(&b, l.p.outStyle())
			b.WriteByte('\n')
		}
		if _, err := l.p.out.Write(b.Bytes()); err != nil {
			return err
		}
		if r, ok := l.p.out.(*reader); ok && r.gone {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// look asks all Consuls, and then all edges, at once.
func (l *fleetLook) look(ctx context.Context) (*fleetView, []answer[*sites]) {
	v := &fleetView{At: time.Now().UTC()}
	answers := ask(ctx, l.p, l.targets, siteOf)
	var nodes []nodeAt
	for _, a := range answers {
		if a.err == nil {
			for _, n := range a.value.nodes {
				nodes = append(nodes, nodeAt{a.target, n})
			}
		}
	}
	found := make([]fleetNode, len(nodes))
	read := make([]*figures, len(nodes))
	bounded, cancel := context.WithTimeout(ctx, l.limit)
	defer cancel()
	each(nodes, func(i int, n nodeAt) { found[i], read[i] = l.node(bounded, n) })
	next := map[string]*figures{}
	for i, n := range nodes {
		if read[i] != nil {
			next[n.target.name+" "+n.node.ID] = read[i]
		}
	}
	l.before = next
	drains, topology := overall(answers)
	for _, a := range answers {
		place := fleetPlace{Region: a.target.name, PoPs: []fleetPoP{}}
		if a.err != nil {
			place.Error = a.err.Error()
		}
		pops := map[string]*fleetPoP{}
		var order []string
		add := func(name string, listed bool) *fleetPoP {
			if pops[name] == nil {
				pops[name] = &fleetPoP{PoP: name, Drained: drains[name], Nodes: []fleetNode{}}
				order = append(order, name)
			}
			pops[name].Listed = pops[name].Listed || listed
			return pops[name]
		}
		if topology != nil {
			if i := slices.IndexFunc(topology.Regions, func(r region.TopologyRegion) bool { return r.Name == a.target.name }); i >= 0 {
				for _, p := range topology.Regions[i].PoPs {
					add(p.Name, true)
				}
			}
		}
		for i, n := range nodes {
			if n.target != a.target {
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
func overall(answers []answer[*sites]) (map[string]*region.Drain, *region.Topology) {
	drains := map[string]*region.Drain{}
	var topology *region.Topology
	for _, a := range answers {
		if a.err != nil {
			continue
		}
		if topology == nil {
			topology = a.value.topology
		}
		for name, d := range a.value.drains {
			if had := drains[name]; had == nil || d.Since.Before(had.Since) {
				drains[name] = &d
			}
		}
	}
	return drains, topology
}

// node asks one edge, and takes what Consul knows where it does not answer.
func (l *fleetLook) node(ctx context.Context, n nodeAt) (fleetNode, *figures) {
	v := fleetNode{ID: n.node.ID, Passing: n.node.Passing, Rules: n.node.RulesVersion, Shedder: n.node.ShedderVersion}
	if !v.Passing {
		v.Output = strings.Join(strings.Fields(n.node.Output), " ")
	}
	f, err := n.target.admin.figures(ctx, n.node)
	if err != nil {
		v.Error = err.Error()
		return v, nil
	}
	v.Rules, v.Shedder, v.Utilization, v.ShedLevel, v.StoreUp = f.rules, f.shedder, &f.utilization, &f.level, f.storeUp
	if before := l.before[n.target.name+" "+n.node.ID]; before != nil {
		v.interval = f.since(before)
		v.Rate = &v.interval.Rate
		share := ratio(v.interval.Limited, v.interval.Requests)
		v.Limited = &share
	}
	return v, f
}

// total adds up.
func (v *fleetView) total() {
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
	t.Limited = ratio(limited, requests)
}
