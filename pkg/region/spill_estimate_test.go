package region

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The estimate expects the effect of moves on figures, and nothing that a figure does not show:
// the estimated demand of a PoP's own clients stays, though every figure on the way differs.
func TestMovesAreNoChangeOfDemand(t *testing.T) {
	topology := mustParse(t, row)
	v, spill := NewView(topology, nil, nil), &Spill{At: noon}
	const ttl, own = 20 * time.Second, 1190.0
	var answered []float64 // the share of a1's clients that leave, by second
	measured, published, publishedAt := own, own, 0
	for second := range 300 {
		from := max(0, len(answered)-int(ttl/time.Second))
		asking := 0.0
		for _, share := range answered[from:] {
			asking += share / ttl.Seconds()
		}
		measured += (own*(1-asking) - measured) * -math.Expm1(-1/measuring)
		if math.Abs(measured-published) > unpublished*published && second-publishedAt >= 10 {
			published, publishedAt = measured, second
		}
		v = v.With(loads(topology, published, 1000, 500, 1000, 500, 1000)).Spilled(spill, ttl, spill.At.Add(time.Second))
		spill = v.Spill
		g := spill.Gifts["a1"]
		answered = append(answered, 1-of1(g))
		require.InDelta(t, own, g.Own, 0.055*own, "after %d s, published %.0f of %.0f", second, published, measured)
	}
	g := spill.Gifts["a1"]
	require.InDelta(t, 1-giveTo*1000/own, 1-of1(g), 0.06)
	require.Equal(t, noon.Add(time.Second), g.Last.At, "no other change was seen")
}

// of1 returns the share that stays.
func of1(g Gift) float64 {
	return 1 - g.given(func(p Part) float64 { return p.Share }, []string{"b1", "c1"})
}

// A constant figure shows only that demand is within a step of it.
func TestAFigureThatStaysBoundsDemand(t *testing.T) {
	topology := mustParse(t, row)
	v := NewView(topology, nil, nil)
	at := func(after time.Duration, own float64, demand float64) float64 {
		spill := &Spill{At: noon, Gifts: map[string]Gift{"a1": {Own: own, Published: 800, Since: noon, Last: Change{At: noon, Own: own, Capacity: 1000}}}}
		v = v.With(loads(topology, demand, 1000, 500, 1000, 500, 1000)).Spilled(spill, 20*time.Second, noon.Add(after))
		return v.Spill.Gifts["a1"].Own
	}
	require.InDelta(t, 900, at(5*time.Second, 900, 800), 1e-9, "the next may be held back")
	require.InDelta(t, 840, at(11*time.Second, 900, 800), 1e-9)
	require.InDelta(t, 820, at(11*time.Second, 820, 800), 1e-9)
	require.InDelta(t, 760, at(11*time.Second, 700, 800), 1e-9)
	require.InDelta(t, 700, at(5*time.Second, 900, 700), 1e-9, "a new one")
}
