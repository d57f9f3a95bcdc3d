// Package overview has the command that shows the whole fleet on one screen.
package overview

import (
	"context"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-edge/weir/internal/ctl/command"
	"github.com/weir-edge/weir/internal/ctl/fleet"
	"github.com/weir-edge/weir/internal/ctl/kinds"
	"github.com/weir-edge/weir/internal/ctl/sites"
	"github.com/weir-edge/weir/pkg/region"
	"github.com/weir-edge/weir/pkg/region/consul"
)

const help = `Shows the whole fleet on one screen: each region with its PoPs, and each PoP with its
edges: whether it passes its check in Consul, the versions of rules and shedder settings
that it runs, how busy it is (the highest signal of its shedder, 0 to 1), how far it sheds
(0: nothing; each whole step sheds one more class; off: the kill switch is on), requests per second and the share of them
that rules refused, over the last interval, and whether its Redis answers.

A PoP is serving if the topology lists it, one of its edges passes and it is not drained;
without a topology none is. What DNS answers also depends on the past: regionctl dns explain
shows it.

Edges are asked at their admin listeners, each for at most --timeout, or the interval of
--watch if that is less. For one that does not answer, status shows what Consul knows.

--watch looks again every second until interrupted; --watch=5s every five. With
-o json each look is one line.

Exits with 0, or with 3 if a region did not answer.`

// leastAhead is the least difference of two clocks that counts, in seconds: a Date is whole
// seconds, and an answer takes a while.
const leastAhead = 5

// Apart is how far the two looks are apart that a rate is made of.
const Apart = time.Second

func Command(p *command.Program) *cobra.Command {
	return command.Watched(p, "status", "show the whole fleet on one screen", help,
		`  regionctl status
  regionctl status --watch
  regionctl status -o json | jq '.regions[].pops[] | select(.serving == false) | .pop'`, "1s",
		func(ctx context.Context, names []string) error {
			v, err := Look(ctx, p, names)
			return command.Show(p, v, err, (*Fleet).Write)
		}, func(ctx context.Context, names []string, every time.Duration) error {
			return Watch(ctx, p, names, every, func(v *Fleet) error { return p.Draw(v, v.Write) })
		})
}

// Fleet is what status prints with -o json.
type Fleet struct {
	At time.Time `json:"at"`
	// Topology says whether there is one. Without it no router answers for any PoP.
	Topology bool           `json:"topology"`
	Regions  []RegionStatus `json:"regions"`
	Totals   totals         `json:"totals"`
}

type RegionStatus struct {
	Region string      `json:"region"`
	Error  string      `json:"error,omitempty"` // why its Consul gives no answer
	PoPs   []PopStatus `json:"pops"`
}

type PopStatus struct {
	PoP string `json:"pop"`
	// Serving and Passing are null if its region's Consul gives no answer. A drain, which any region
	// may report, is enough to know that the PoP does not serve.
	Serving    *bool         `json:"serving"`
	Drained    *region.Drain `json:"drained"`
	InTopology bool          `json:"in_topology"`
	Passing    *int          `json:"passing"`
	Nodes      []NodeStatus  `json:"nodes"`
}

// NodeStatus is one edge. What was not measured is null.
type NodeStatus struct {
	ID          string   `json:"id"`
	Passing     bool     `json:"passing"`
	Output      string   `json:"output,omitempty"`
	Rules       string   `json:"rules_version"`
	Shedder     string   `json:"shedder_version"`
	Utilization *float64 `json:"utilization"`
	ShedLevel   *float64 `json:"shed_level"`
	// Shedding says that requests are shed, by the level or by caps.
	Shedding bool `json:"shedding"`
	// Off says that the shedder's kill switch is on.
	Off     bool     `json:"shedder_off,omitempty"`
	Rate    *float64 `json:"requests_per_second"`
	Limited *float64 `json:"limited_share"`
	StoreUp *bool    `json:"store_up"`
	// Clock is how many seconds the edge's clock is ahead of its region's Consul's; less than 5
	// count as 0.
	Clock *float64 `json:"clock_ahead_seconds"`
	Error string   `json:"error,omitempty"` // why the edge itself was not asked

	interval fleet.Interval
}

// totals are the totals over all edges.
type totals struct {
	Regions   int     `json:"regions"`
	Unknown   int     `json:"regions_unknown"`
	PoPs      int     `json:"pops"`
	Serving   int     `json:"pops_serving"`
	Drained   int     `json:"pops_drained"`
	Nodes     int     `json:"nodes"`
	Passing   int     `json:"nodes_passing"`
	StoreDown int     `json:"nodes_without_store"`
	Shedding  int     `json:"nodes_shedding"`
	Off       int     `json:"nodes_shedder_off"`
	Rate      float64 `json:"requests_per_second"`
	Limited   float64 `json:"limited_share"`
}

func (p *PopStatus) serves() bool { return p.Serving != nil && *p.Serving }

// looks are repeated looks at the fleet.
type looks struct {
	targets []*fleet.Target
	limit   time.Duration // for the edges of one region
	before  map[*fleet.Target]map[string]*fleet.Figures
}

// measured is what one look found in a region; figures has the edges in the order of nodes.
type measured struct {
	*sites.Region
	edges   []NodeStatus
	figures []*fleet.Figures // nil: it did not answer
}

// Look looks at the fleet. A fleet comes with an error if it is not whole.
func Look(ctx context.Context, p *command.Program, names []string) (*Fleet, error) {
	targets, err := p.Targets(kinds.Rules, names)
	if err != nil {
		return nil, err
	}
	l := &looks{targets: targets, limit: p.Timeout}
	answers := l.look(ctx)
	if err := consul.Pause(ctx, Apart); err != nil { // a rate is the difference of two looks
		return nil, err
	}
	l.again(ctx, answers)
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return newFleet(p.Now(), answers), command.Unanswered(answers)
}

// Watch looks again and again until ctx ends.
func Watch(ctx context.Context, p *command.Program, names []string, every time.Duration, show func(*Fleet) error) error {
	targets, err := p.Targets(kinds.Rules, names)
	if err != nil {
		return err
	}
	l := &looks{targets: targets, limit: min(p.Timeout, max(every, 500*time.Millisecond))}
	return command.Watch(ctx, every, show, func(ctx context.Context) *Fleet { return newFleet(p.Now(), l.look(ctx)) })
}

// look asks each region's Consul and then its edges, independently of other regions.
func (l *looks) look(ctx context.Context) []fleet.Answer[*measured] {
	answers := fleet.AskUnbounded(ctx, l.targets, func(ctx context.Context, t *fleet.Target) (*measured, error) {
		brief, cancel := t.Bounded(ctx)
		defer cancel()
		s, err := sites.Of(brief, t)
		if err != nil {
			return nil, err
		}
		m := &measured{s, make([]NodeStatus, len(s.Nodes)), make([]*fleet.Figures, len(s.Nodes))}
		l.measure(ctx, t, m)
		return m, nil
	})
	l.before = map[*fleet.Target]map[string]*fleet.Figures{}
	for _, a := range answers {
		if a.Err == nil {
			l.before[a.Target] = a.Value.byNode()
		}
	}
	return answers
}

// again asks the edges that have answered.
func (l *looks) again(ctx context.Context, answers []fleet.Answer[*measured]) {
	var all sync.WaitGroup
	for _, a := range answers {
		if a.Err == nil {
			all.Go(func() { l.measure(ctx, a.Target, a.Value) })
		}
	}
	all.Wait()
}

func (l *looks) measure(ctx context.Context, t *fleet.Target, m *measured) {
	ctx, cancel := context.WithTimeout(ctx, l.limit)
	defer cancel()
	fleet.Each(m.Nodes, func(i int, n consul.Node) {
		if m.edges[i].Error == "" {
			m.edges[i], m.figures[i] = measure(ctx, t, n, l.before[t][n.ID])
		}
	})
}

func (m *measured) byNode() map[string]*fleet.Figures {
	read := map[string]*fleet.Figures{}
	for i, f := range m.figures {
		if f != nil {
			read[m.Nodes[i].ID] = f
		}
	}
	return read
}

// newFleet combines what the regions report.
func newFleet(at time.Time, answers []fleet.Answer[*measured]) *Fleet {
	v := &Fleet{At: at.UTC()}
	var list []*sites.Region
	for _, a := range answers {
		if a.Err == nil {
			list = append(list, a.Value.Region)
		}
	}
	drains, topology := sites.Overall(list)
	v.Topology = topology != nil
	for _, a := range answers {
		status := RegionStatus{Region: a.Target.Name, PoPs: []PopStatus{}}
		if a.Err != nil {
			status.Error = a.Err.Error()
		}
		pops := map[string]*PopStatus{}
		var order []string
		add := func(name string, listed bool) *PopStatus {
			if pops[name] == nil {
				pops[name] = &PopStatus{PoP: name, Drained: drains[name], Nodes: []NodeStatus{}}
				order = append(order, name)
			}
			pops[name].InTopology = pops[name].InTopology || listed
			return pops[name]
		}
		if topology != nil {
			if i := slices.IndexFunc(topology.Regions, func(r region.TopologyRegion) bool { return r.Name == a.Target.Name }); i >= 0 {
				for _, p := range topology.Regions[i].PoPs {
					add(p.Name, true)
				}
			}
		}
		passing := map[string]int{}
		if a.Err == nil {
			for i, n := range a.Value.Nodes {
				p := add(n.PoP, false)
				p.Nodes = append(p.Nodes, a.Value.edges[i])
				if n.Passing {
					passing[n.PoP]++
				}
			}
		}
		for _, name := range order {
			p := pops[name]
			if a.Err == nil {
				p.Passing = new(passing[name])
			}
			if a.Err == nil || p.Drained != nil {
				p.Serving = new(p.InTopology && passing[name] > 0 && p.Drained == nil)
			}
			status.PoPs = append(status.PoPs, *p)
		}
		v.Regions = append(v.Regions, status)
	}
	v.Total()
	return v
}

// measure asks one edge, and falls back on what Consul knows if it does not answer.
func measure(ctx context.Context, t *fleet.Target, n consul.Node, before *fleet.Figures) (NodeStatus, *fleet.Figures) {
	v := NodeStatus{ID: n.ID, Passing: n.Passing, Rules: n.RulesVersion, Shedder: n.ShedderVersion}
	if !v.Passing {
		v.Output = strings.Join(strings.Fields(n.Output), " ")
	}
	f, err := t.Admin.Figures(ctx, n)
	if err != nil {
		v.Error = fleet.Reason(err)
		return v, nil
	}
	v.Rules, v.Shedder, v.Utilization, v.ShedLevel, v.Off, v.StoreUp = f.Rules, f.Shedder, &f.Utilization, &f.Level, f.Off, f.StoreUp
	v.Shedding = f.Level > 0
	if f.Ahead != nil {
		ahead := (*f.Ahead - t.Ahead()).Round(time.Second).Seconds()
		if math.Abs(ahead) < leastAhead {
			ahead = 0
		}
		v.Clock = &ahead
	}
	if before != nil {
		v.interval = f.Since(before)
		v.Rate, v.Shedding = &v.interval.Rate, v.Shedding || v.interval.Shed
		// A request is limited a moment before it is counted.
		share := min(1, fleet.Ratio(v.interval.Limited, v.interval.Requests))
		v.Limited = &share
	}
	return v, f
}

func (v *Fleet) Total() {
	t := &v.Totals
	var limited, requests float64
	for _, r := range v.Regions {
		t.Regions++
		if r.Error != "" {
			t.Unknown++
		}
		for _, p := range r.PoPs {
			t.PoPs++
			if p.serves() {
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
				if n.Shedding {
					t.Shedding++
				}
				if n.Off {
					t.Off++
				}
				t.Rate += n.interval.Rate
				limited += n.interval.Limited
				requests += n.interval.Requests
			}
		}
	}
	t.Limited = min(1, fleet.Ratio(limited, requests))
}
