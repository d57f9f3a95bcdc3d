package e2e

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/testenv"
	"github.com/weir-edge/weir/pkg/limiter"
	"github.com/weir-edge/weir/pkg/limiter/global"
)

// A region dies with its Redis. Its part of a limit in escrow is lost until the region counts
// as dead; from then on only its heir spends it. The region returns with an empty Redis and
// spends nothing until the part is its own again. No window passes more than the limit.
//
// It takes six minutes, so it belongs to make soak.
func TestTheHeirOfADeadRegion(t *testing.T) {
	if !soak() {
		return
	}
	t.Parallel()
	const path, who = "/escrow", "203.0.113.5"
	const heir, other, dead = 0, 1, 2
	g := newGlobe(t)
	byName := slices.Sorted(slices.Values(g.names))
	require.Equal(t, g.names[heir], byName[global.HeirOf(slices.Index(byName, g.names[dead]), len(byName))])
	g.partsAre("every region has its part", [3]float64{1, 1, 1})

	// asks sends demand to the first regions while during runs.
	asks := func(regions, windows int, meanwhile func()) []outcome {
		var list []outcome
		var asking sync.WaitGroup
		asking.Go(func() {
			list = g.demand(path, who, windows, func(client int, _ float64) int {
				if client >= regions {
					return -1
				}
				return client
			})
		})
		meanwhile()
		asking.Wait()
		for i, o := range list {
			t.Logf("window %d: %d passed of %d asked for, %d unsure", i, o.passed, o.asked, o.unsure)
			require.LessOrEqual(t, o.passed, int64(globalLimit))
		}
		return list
	}
	const twoParts = globalLimit - globalLimit/3 // the most that two regions may have, with rounding

	// New stores cannot be certain that they lost nothing, and a majority of such stores does
	// not suffice. All together do.
	for _, o := range asks(3, int(limiter.TermForgotten/globalWindow)+1, func() {})[1:] {
		require.Greater(t, o.passed+o.unsure, int64(twoParts), "all have their parts")
	}

	list := asks(2, 26, func() {
		for _, n := range g.nodes[dead] {
			n.Kill()
		}
		g.redis[dead].Kill()
		killed := time.Now()
		g.partsAre("its heir has its part", [3]float64{heir: 2, other: 1})
		took := time.Since(killed)
		t.Logf("%s after it died, its heir has its part", took.Round(100*time.Millisecond))
		require.Greater(t, took, limiter.TermLasts, "it may live: it asked 5 s before at the most")
	})
	// The first window may have begun while it lived. Before it died it asked for windows that
	// begin within a term, at most one window's duration earlier.
	for _, o := range list[1 : limiter.TermLasts/globalWindow-1] {
		require.LessOrEqual(t, o.passed, int64(twoParts), "its part is nobody's yet")
		require.GreaterOrEqual(t, o.passed+o.unsure, int64(twoParts)-2, "the others lack only its part")
	}
	last := list[len(list)-1]
	require.Greater(t, last.passed+last.unsure, int64(twoParts), "its part is spent")

	list = asks(3, 20, func() {
		g.redis[dead].Start()
		for _, n := range g.nodes[dead] {
			n.Start()
			n.WaitReady()
		}
		returned := time.Now()
		g.partsAre("the part is its own again", [3]float64{1, 1, 1})
		t.Logf("%s after it returned, its part is its own again", time.Since(returned).Round(100*time.Millisecond))
	})
	last = list[len(list)-1]
	require.Greater(t, last.passed+last.unsure, int64(twoParts), "all parts are spent")
}

// partsAre waits until each region may spend this many parts of a limit. 0 skips the region.
func (g *globe) partsAre(what string, parts [3]float64) {
	g.Helper()
	eventually(g, 2*testenv.Patience, what, func() bool {
		for region, nodes := range g.nodes {
			if parts[region] == 0 {
				continue
			}
			m, err := scrape(nodes[0].Admin, "weir_global_parts")
			if err != nil || m["weir_global_parts"] != parts[region] {
				return false
			}
		}
		return true
	})
}
