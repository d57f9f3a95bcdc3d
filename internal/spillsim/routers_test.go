package spillsim

import (
	"slices"
	"time"

	"github.com/weir-edge/weir/pkg/region"
	"github.com/weir-edge/weir/pkg/region/consul"
)

// spilling is a real router: with its law, choice and agreement.
type spilling struct {
	view           *region.View
	agreement      region.Agreement
	by             string
	loads          []consul.Load
	heard          int // how many registrations of the world
	index          map[string]int
	deaf, restarts time.Duration
	hears          time.Duration // again; 0: never
	last           time.Duration // when it last heard
}

func newSpilling(w *world) router { return newRouter(w, "a", 0) }

func newRouter(w *world, by string, t time.Duration) *spilling {
	r := &spilling{loads: make([]consul.Load, len(w.pops)), index: map[string]int{}, by: by}
	for i, s := range w.topology.Regions {
		r.index[s.PoPs[0].Name] = i
	}
	r.start(w, t)
	return r
}

// start restarts the router without any state.
func (r *spilling) start(w *world, t time.Duration) {
	r.view, r.agreement = region.NewView(w.topology, nil, nil), region.Agreement{}
	r.view.Spill = &region.Spill{By: r.by, Since: w.epoch.Add(t)}
}

// second is the router to which the scenario does something.
func second(w *world) router {
	r := newRouter(w, "b", time.Second)
	r.deaf, r.restarts, r.hears = w.deaf, w.restarts, w.hears
	return r
}

func (r *spilling) hear(w *world, t time.Duration) {
	since, spill := t-warmUp, r.view.Spill
	if r.restarts != 0 && since == r.restarts {
		r.start(w, t)
		spill = r.view.Spill
	}
	if r.deaf == 0 || since < r.deaf || r.hears != 0 && since >= r.hears {
		for ; r.heard < len(w.heard) && w.heard[r.heard].at <= t; r.heard++ {
			r.loads[w.heard[r.heard].pop] = w.heard[r.heard].load
		}
		r.last = t
		if since == r.restarts || since == r.hears || t%(10*time.Second) == time.Duration(r.by[0]-96)*3*time.Second {
			next, write, err := r.agreement.Agree(r.view, w.record, w.epoch.Add(t))
			if err != nil {
				panic(err) // no router of a simulation is an attacker
			}
			if spill = next; write {
				w.record = next
			}
		}
	}
	states := map[string]region.PoPState{}
	for i, s := range w.topology.Regions {
		p := &s.PoPs[0]
		state := region.PoPState{Healthy: !w.dead(i, t-detect), Known: true, Nodes: 1, Passing: 1, Stale: t-r.last > time.Minute}
		state.SetLoad([]consul.Instance{{Load: r.loads[i], TellsLoad: true}}, p.Capacity)
		states[p.Name] = state
	}
	r.view = r.view.With(states).Spilled(spill, w.ttl, w.epoch.Add(t))
	r.agreement.Note(r.view.Spill)
}

func (r *spilling) pick(_ *world, n *network) int {
	if len(r.view.PoPs) == 0 {
		return n.home
	}
	a := r.view.Choose(region.Query{Client: n.client, Random: region.StickyRandom(n.client)})
	return r.index[a.PoPs[0]]
}

// near returns the other PoPs by distance.
func near(w *world, p int) (list []int) {
	v := region.NewView(w.topology, nil, nil)
	for _, name := range v.Nearest(w.topology.Regions[p].PoPs[0].Name) {
		list = append(list, slices.IndexFunc(w.topology.Regions, func(r region.TopologyRegion) bool { return r.PoPs[0].Name == name }))
	}
	return list
}

// staying sends nobody away, except from a lost region.
type staying struct {
	dead []bool
	near [][]int
}

func newStaying(w *world) router {
	r := &staying{dead: make([]bool, len(w.pops))}
	for i := range w.pops {
		r.near = append(r.near, near(w, i))
	}
	return r
}

func (r *staying) hear(w *world, t time.Duration) {
	for i := range r.dead {
		r.dead[i] = w.dead(i, t-detect)
	}
}

func (r *staying) pick(_ *world, n *network) int {
	if !r.dead[n.home] {
		return n.home
	}
	for _, q := range r.near[n.home] {
		if !r.dead[q] {
			return q
		}
	}
	return n.home
}

// omniscient knows the demand of every network and the capacity of every PoP, no sooner than a real router could, and
// moves as many clients as fit at once.
type omniscient struct {
	staying
	share [][]float64
	rank  map[*network]float64 // the demand, 0..1, of its PoP's networks up to it
}

// knows is the mean time in which figures are measured and published.
const knows = 5 * time.Second

func newOmniscient(w *world) router {
	r := &omniscient{staying: *newStaying(w).(*staying), rank: map[*network]float64{}}
	for i := range w.pops {
		sum := 0.0
		for _, n := range slices.Backward(w.networks[i*networks : (i+1)*networks]) { // the smallest first
			sum += n.weight
			r.rank[n] = sum
		}
	}
	return r
}

func (r *omniscient) hear(w *world, t time.Duration) {
	r.staying.hear(w, t)
	n := len(w.pops)
	r.share = make([][]float64, n)
	want, room, own := make([]float64, n), make([]float64, n), make([]float64, n)
	for i, p := range w.pops {
		r.share[i] = make([]float64, n)
		own[i] = w.rate(i, max(t-knows, 0))
		want[i], room[i] = max(0, own[i]-0.98*p.capacity), max(0, 0.98*p.capacity-own[i])
		if r.dead[i] {
			want[i], room[i] = own[i], 0
		}
	}
	for nth := range n - 1 {
		for i := range n {
			q := r.near[i][nth]
			add := min(want[i], room[q])
			want[i] -= add
			room[q] -= add
			r.share[i][q] = add / max(own[i], 1)
		}
	}
}

func (r *omniscient) pick(w *world, n *network) int {
	at, end := r.rank[n], 0.0
	for _, q := range r.near[n.home] {
		if end += r.share[n.home][q]; at < end {
			return q
		}
	}
	return r.staying.pick(w, n)
}
