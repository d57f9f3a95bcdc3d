package spillsim

import (
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/weir-edge/weir/pkg/region"
)

// Routers move hashed shares. Beside a large PoP, one heavy network decides which of them a
// small PoP can serve: the loads within the bound are nearer to each other than the figures
// by which routers could tell them apart.
func TestFewSharesFitASmallPoP(t *testing.T) {
	const finest, published = 10_000, 0.05 // shares that are tried; the steps of figures
	w := newWorld(scenarios[1], 1, newSpilling)
	large, small := w.rate(0, warmUp), w.rate(1, warmUp)
	r, full := w.routers[0].(*spilling), w.pops[1].capacity
	best := large + small - 0.98*full - w.pops[0].capacity // the omniscient router sheds that much
	least := large + small - w.pops[0].capacity - lateTimes*best - byChance*(large+small)
	healthy := region.PoPState{Healthy: true, Known: true}
	r.view = r.view.With(map[string]region.PoPState{"pop0": healthy, "pop1": healthy})
	var fit []float64
	next := 0.0
	for i := 0; i < finest && next == 0; i++ {
		share := float64(i) / finest
		parts := map[string]region.Part{"pop1": {Goal: share, Share: share}}
		gifts := map[string]region.Gift{"pop0": {Own: large, Parts: parts}}
		r.view = r.view.Spilled(&region.Spill{At: w.epoch, Gifts: gifts}, w.ttl, w.epoch)
		load := small
		for _, n := range w.networks[:networks] {
			if r.pick(w, n) == 1 {
				load += n.weight * large
			}
		}
		switch {
		case load > full:
			next = load
		case load >= least:
			fit = append(fit, load)
		}
	}
	require.NotEmpty(t, fit)
	lowest, highest := fit[0], fit[len(fit)-1]
	t.Logf("of %d shares %d fit, with loads of %.0f to %.0f; the next is %.0f", finest, len(fit), lowest, highest, next)
	require.Less(t, highest-lowest, published*highest)
	require.Greater(t, next, (1+published)*full)
}
