package region

import (
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-edge/weir/pkg/region/consul"
)

// A router whose clock is behind the clock of the writer of its file, or its record, continues
// from there.
func TestSpillOutlastsClocksSetBack(t *testing.T) {
	topology := mustParse(t, row)
	for _, ahead := range []time.Duration{time.Second, time.Minute, time.Hour, 365 * 24 * time.Hour} {
		v := NewView(topology, loads(topology, 930, 1000, 600, 1000, 300, 1000), nil)
		then := noon.Add(ahead)
		part := Part{Goal: 0.2, Share: 0.2, Noticed: 0.2, Asking: [3]float64{0.2, 0.2, 0.2}}
		spill := firstSpill(&Spill{At: then, Gifts: map[string]Gift{
			"a1": {Own: 1160, Published: 930, Since: then, Parts: map[string]Part{"b1": part}, Last: Change{At: then, Own: 1160, Capacity: 1000}},
		}}, noon)
		for second := range 60 {
			v = v.Spilled(spill, 20*time.Second, noon.Add(time.Duration(second)*time.Second))
			spill = v.Spill
			require.NoError(t, spill.check())
			require.InDelta(t, 0.2, spill.Gifts["a1"].Parts["b1"].Share, 0.05, "%s ahead, after %d s", ahead, second)
		}
	}
}

// Nor does a command whose clients keep no answer, on a clock that is behind.
func TestSpillWithoutTTLOutlastsClocksSetBack(t *testing.T) {
	topology := mustParse(t, row)
	v := NewView(topology, loads(topology, 1500, 1000, 300, 1000, 300, 1000), nil)
	spill := v.Spilled(&Spill{At: noon.Add(time.Minute)}, 0, noon).Spill
	require.NoError(t, spill.check())
	require.Positive(t, spill.Gifts["a1"].Parts["b1"].Goal)
}

// No figures that a node can publish, and no readable record, lead to invalid shares. (Figures
// beyond consul.Load's bounds count as unpublished.)
func TestSpillOutlastsAnyFigures(t *testing.T) {
	topology := mustParse(t, row)
	figure := rapid.SampledFrom([]float64{0, 5e-324, 1e-300, 1e-9, 1, 100, 1000, 1e9})
	share := rapid.Float64Range(0, 1)
	names := []string{"a1", "b1", "c1"}
	rapid.Check(t, func(t *rapid.T) {
		spill := &Spill{At: noon, Gifts: map[string]Gift{}}
		for _, from := range names {
			g := Gift{Own: rapid.Float64Range(0, mostDemand).Draw(t, "own"), Parts: map[string]Part{}}
			g.Last = Change{At: noon, Own: figure.Draw(t, "last"), Relapses: rapid.IntRange(-1, 3).Draw(t, "relapses"), Relapsed: noon}
			for _, to := range names {
				g.Parts[to] = Part{Goal: share.Draw(t, "goal"), Share: share.Draw(t, "share") / 3, Noticed: share.Draw(t, "noticed"), Most: share.Draw(t, "most")}
			}
			spill.Gifts[from] = g
		}
		require.NoError(t, spill.check())
		for second := range 30 {
			states := allUp(topology)
			for name, s := range states {
				var nodes []consul.Instance
				for range rapid.IntRange(1, 3).Draw(t, "nodes") {
					nodes = append(nodes, telling(figure.Draw(t, "demand"), figure.Draw(t, "capacity"), figure.Draw(t, "at least")))
				}
				s.SetLoad(nodes, nil)
				states[name] = s
			}
			spill = NewView(topology, states, nil).Spilled(spill, 20*time.Second, noon.Add(time.Duration(second)*time.Second)).Spill
			require.NoError(t, spill.check())
		}
	})
}

// A PoP that alternately reports a small and a large capacity every half minute moves clients a
// few times, and then at the pace of a settled one.
func TestRestlessPoP(t *testing.T) {
	topology := mustParse(t, row)
	spill, last := &Spill{At: noon}, map[int]string{}
	moves := [15]int{} // by minute, of 3 × 4096 networks
	for second := range 60 * len(moves) {
		capacity := []float64{2000, 100}[second/30%2]
		v := NewView(topology, loads(topology, 1000, capacity, 300, 1000, 300, 1000), nil).Spilled(spill, 20*time.Second, noon.Add(time.Duration(second)*time.Second))
		if spill = v.Spill; second%20 != 0 {
			continue
		}
		_, at := of(v, 0)
		for network, pop := range at {
			if before, asked := last[network]; asked && before != pop {
				moves[second/60]++
			}
		}
		last = at
	}
	for minute, n := range moves {
		if minute >= 7 {
			require.LessOrEqual(t, n, 3*4096/100, "minute %d of %v", minute, moves)
		}
	}
	require.Positive(t, moves[0])
	v := NewView(topology, allUp(topology), nil)
	v.Spill, v.At = spill, spill.At
	why := v.Choose(Query{Client: netip.MustParsePrefix("10.0.0.0/24"), Explain: true}).Reason
	require.Regexp(t, `^a1 has filled up again \d+ times; its clients come back at 12:2\d:\d\dZ at the earliest$`, why[0])

	// A PoP whose demand varies within its capacity still gets clients immediately.
	spill = &Spill{At: noon}
	for second := range 900 {
		idle, full := []float64{100, 150}[second/60%2], 1000.0
		if second >= 600 {
			full = 1300
		}
		spill = NewView(topology, loads(topology, full, 1100, idle, 1000, 300, 1000), nil).Spilled(spill, 20*time.Second, noon.Add(time.Duration(second)*time.Second)).Spill
		if second == 610 {
			require.Greater(t, spill.Gifts["a1"].Parts["b1"].Share, 0.1)
			require.Zero(t, spill.Gifts["b1"].Last.Relapses)
		}
	}
}
