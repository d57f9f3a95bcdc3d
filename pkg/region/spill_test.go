package region

import (
	"math"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

// settle runs a router's spill for ten minutes with constant figures.
func settle(v *View) *View {
	spill := &Spill{At: noon}
	for t := noon; t.Before(noon.Add(10 * time.Minute)); t = t.Add(longestSpillStep) {
		v = v.Spilled(spill, 20*time.Second, t)
		spill = v.Spill
	}
	return v
}

// row has three PoPs in a row, each with a network of 4096 clients.
const row = `
zone: edge.example.com
regions:
  - {name: a, pops: [{name: a1, addresses: [192.0.2.1], location: {lat: 0, lon: 0}, clients: [10.0.0.0/12]}]}
  - {name: b, pops: [{name: b1, addresses: [192.0.2.2], location: {lat: 0, lon: 10}, clients: [10.16.0.0/12]}]}
  - {name: c, pops: [{name: c1, addresses: [192.0.2.3], location: {lat: 0, lon: 20}, clients: [10.32.0.0/12]}]}
`

// of asks for all of a PoP's client networks.
func of(v *View, pop int) (shares map[string]float64, at map[int]string) {
	shares, at = map[string]float64{}, map[int]string{}
	for i := range 1 << 12 {
		a := v.Choose(Query{Client: netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(16*pop + i>>8), byte(i), 0}), 24)})
		shares[a.PoPs[0]] += 1.0 / (1 << 12)
		at[i] = a.PoPs[0]
	}
	return shares, at
}

func loads(topology *Topology, figures ...float64) map[string]PoPState {
	states := allUp(topology)
	for i, name := range []string{"a1", "b1", "c1"} {
		s := states[name]
		s.Demand, s.Capacity = figures[2*i], figures[2*i+1]
		states[name] = s
	}
	return states
}

// The nearest PoP gets what fits, then the next; no other PoP's clients move.
func TestSpillGoesWhereItFits(t *testing.T) {
	topology := mustParse(t, row)
	first := func(demand float64) *View {
		return NewView(topology, loads(topology, demand, 1000, 830, 1000, 500, 1000), nil).Spilled(&Spill{}, 0, noon)
	}
	v := first(1130) // which may be 1187
	shares, few := of(v, 0)
	require.InDelta(t, 0.1/1.158, shares["b1"], 0.02)
	require.InDelta(t, 0.128/1.158, shares["c1"], 0.02)
	for pop := 1; pop < 3; pop++ {
		shares, _ = of(v, pop)
		require.Len(t, shares, 1)
	}
	shares, many := of(first(1330), 0)
	require.InDelta(t, 0.1/1.363, shares["b1"], 0.02)
	require.InDelta(t, 0.333/1.363, shares["c1"], 0.02)
	back, sideways := 0, 0
	for i, at := range few {
		switch {
		case at == "a1" || many[i] == at:
		case many[i] == "a1":
			back++
		default:
			sideways++
		}
	}
	require.Zero(t, back, "while gifts grow, no client returns")
	require.Less(t, sideways, 1<<12/50)

	a := v.Choose(Query{Client: netip.MustParsePrefix("10.0.1.0/24"), Explain: true})
	require.Contains(t, steps(a), "a1 receives 1130 requests per second and can serve 1000\na1 gives 8.6% of its clients to b1\na1 gives 11.1% of its clients to c1\na1 ")
	shares, _ = of(first(960), 0)
	require.Len(t, shares, 1, "below 97% no client moves")
}

// A PoP with unknown capacity neither gives nor receives. A PoP of weight 0, or with old
// figures, does not receive.
func TestSpillNeedsFigures(t *testing.T) {
	topology := mustParse(t, row)
	stays := func(change func(map[string]PoPState)) {
		t.Helper()
		states := loads(topology, 1200, 1000, 100, 1000, 100, 1000)
		change(states)
		shares, _ := of(NewView(topology, states, nil).Spilled(&Spill{}, 0, noon), 0)
		require.InDelta(t, 0, shares["b1"], 0)
	}
	set := func(name string, how func(*PoPState)) func(map[string]PoPState) {
		return func(states map[string]PoPState) {
			s := states[name]
			how(&s)
			states[name] = s
		}
	}
	stays(set("a1", func(s *PoPState) { s.Capacity = 0 }))
	stays(set("b1", func(s *PoPState) { s.Capacity = 0 }))
	stays(set("a1", func(s *PoPState) { s.Stale = true }))
	stays(set("b1", func(s *PoPState) { s.Stale = true }))
	stays(set("b1", func(s *PoPState) { s.Drained = &Drain{} }))
	stays(set("b1", func(s *PoPState) { s.Healthy = false }))
	none := 0
	topology.Regions[1].PoPs[0].Weight = &none
	stays(func(map[string]PoPState) {})
}

// While figures are old, gifts stay as they are; a lost PoP gets no clients.
func TestSpillFreezes(t *testing.T) {
	topology := mustParse(t, row)
	states := loads(topology, 1200, 1000, 500, 1000, 500, 1000)
	v := NewView(topology, states, nil).Spilled(&Spill{}, 0, noon)
	before, _ := of(v, 0)
	old := loads(topology, 100, 1000, 2000, 1000, 500, 1000)
	for name, s := range old {
		s.Stale = true
		old[name] = s
	}
	v = NewView(topology, old, nil).Spilled(v.Spill, 0, noon.Add(time.Minute))
	after, _ := of(v, 0)
	require.Equal(t, before, after)
	b := old["b1"]
	b.Healthy = false
	old["b1"] = b
	v = NewView(topology, old, nil).Spilled(v.Spill, 0, noon.Add(2*time.Minute))
	after, _ = of(v, 0)
	require.Equal(t, map[string]float64{"a1": 1}, after)
}

// A lost region's clients go where they fit, by its earlier demand.
func TestLostRegionSpreads(t *testing.T) {
	topology := mustParse(t, row)
	v := NewView(topology, loads(topology, 700, 1000, 500, 1000, 500, 1000), nil).Spilled(&Spill{}, 0, noon)
	shares, _ := of(v, 0)
	require.Len(t, shares, 1)
	states := loads(topology, 0, 0, 500, 1000, 500, 1000)
	states["a1"] = PoPState{}
	v = NewView(topology, states, nil).Spilled(v.Spill, 0, noon.Add(time.Second))
	shares, _ = of(v, 0)
	require.InDelta(t, 0.43/0.7, shares["b1"], 0.02)
	require.InDelta(t, 0.27/0.7, shares["c1"], 0.02)

	// The region is back, and has not published its load yet.
	states["a1"] = PoPState{Healthy: true}
	v = NewView(topology, states, nil).Spilled(v.Spill, 20*time.Second, noon.Add(time.Minute))
	shares, _ = of(v, 0)
	require.Equal(t, map[string]float64{"a1": 1}, shares)
}

// A PoP returns with new edges, which have served almost nothing and promise little more. Its
// clients return anyway, also with a router that starts from another's record.
func TestAPromiseStartsNoGift(t *testing.T) {
	topology := mustParse(t, row)
	const ttl = 20 * time.Second
	states := loads(topology, 0, 0, 300, 1000, 300, 1000)
	states["a1"] = PoPState{}
	out := Part{Goal: 0.5, Share: 0.5, Noticed: 0.5, Asking: [3]float64{0.5, 0.5, 0.5}}
	v := NewView(topology, states, nil)
	v = v.Spilled(&Spill{At: noon, Gifts: map[string]Gift{"a1": {Own: 1000, Published: 1000, Since: noon, Out: true, Parts: map[string]Part{"b1": out, "c1": out}}}}, ttl, noon.Add(time.Second))
	record := v.Spill
	for second := range 120 {
		// Edges publish every 10 s; clients return as their answers expire.
		told := max(1, 1000*(1-math.Exp(-float64(second-second%10)/ttl.Seconds())))
		a := PoPState{Healthy: true, Demand: told, Capacity: told / receiveTo, CapacityEstimated: true}
		states["a1"] = a
		v = v.With(states).Spilled(v.Spill, ttl, v.Spill.At.Add(time.Second))
		require.False(t, v.Spill.Gifts["a1"].Gives(), "after %d s, told %.0f: %+v", second, told, v.Spill.Gifts["a1"])
	}
	require.InDelta(t, 1000, v.Spill.Gifts["a1"].Own, 100)

	states["a1"] = PoPState{Healthy: true, Demand: 1, Capacity: 1 / receiveTo, CapacityEstimated: true}
	fresh := NewView(topology, states, nil).Spilled(&Spill{Gifts: record.Gifts}, ttl, noon.Add(10*time.Second))
	shares, _ := of(fresh, 0)
	require.Equal(t, map[string]float64{"a1": 1}, shares)

	// Gifts made while the PoP was full stay after it has forgotten its capacity.
	part := Part{Goal: 0.2, Share: 0.2, Noticed: 0.2, Asking: [3]float64{0.2, 0.2, 0.2}}
	states["a1"] = PoPState{Healthy: true, Demand: 960, Capacity: 960 / receiveTo, CapacityEstimated: true}
	kept := NewView(topology, states, nil).Spilled(&Spill{At: noon, Gifts: map[string]Gift{"a1": {Own: 1200, Published: 960, Since: noon, Parts: map[string]Part{"b1": part}}}}, ttl, noon.Add(time.Second))
	require.InDelta(t, 0.2, kept.Spill.Gifts["a1"].Parts["b1"].Share, 0.001)
}

// Whatever the figures, shares are valid, no gift goes to a PoP that is out, and what a PoP is
// promised fits. The law does not modify its input.
func TestSpillProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		topology, states, _ := drawTopology(t)
		v := NewView(topology, states, nil)
		spill := &Spill{At: noon}
		for i := range rapid.IntRange(1, 20).Draw(t, "steps") {
			v = v.Spilled(spill, 20*time.Second, noon.Add(time.Duration(i)*5*time.Second))
			again := v.Spilled(spill, 20*time.Second, noon.Add(time.Duration(i)*5*time.Second))
			require.Equal(t, v.Spill, again.Spill)
			spill = v.Spill
			got := map[string]float64{}
			for name, g := range spill.Gifts {
				sum := 0.0
				for to, p := range g.Parts {
					s := states[to]
					require.NotEqual(t, name, to)
					require.True(t, p.Share >= 0 && p.Share <= 1+1e-9 && p.Noticed >= 0 && p.Noticed <= 1+1e-9, "%+v", p)
					require.True(t, p.Goal == 0 || s.up())
					sum += p.Goal
					got[to] += p.Goal * g.Own
				}
				require.LessOrEqual(t, sum, 1+1e-9)
				require.False(t, math.IsNaN(g.Own) || math.IsInf(g.Own, 0) || g.Own < 0)
			}
			for to, rate := range got {
				require.LessOrEqual(t, rate, keepTo*states[to].Capacity+1e-6)
			}
		}
	})
}

func BenchmarkSpill(b *testing.B) {
	topology := &Topology{Zone: "a", Regions: []TopologyRegion{{Name: "r"}}}
	states := map[string]PoPState{}
	for i := range maxPoPs {
		name := "p" + string(rune('a'+i/26)) + string(rune('a'+i%26))
		topology.Regions[0].PoPs = append(topology.Regions[0].PoPs, PoP{Name: name, Location: &Location{float64(i % 90), float64(i % 180)}})
		states[name] = PoPState{Healthy: true, Demand: 500 + 500*float64(i%3), Capacity: 1000}
	}
	v := settle(NewView(topology, states, nil))
	b.ReportAllocs()
	for b.Loop() {
		v.Spilled(v.Spill, 20*time.Second, v.Spill.At.Add(time.Second))
	}
}
