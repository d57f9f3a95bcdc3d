package e2e

import (
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/testenv"
	"github.com/weir-edge/weir/pkg/limiter/global"
)

// A client that asks three regions for three times its limit, at 6,000 per minute, exceeds it by
// at most the printed bound under `eventual` and by nothing under `escrow`. It asks all of them
// at a steady rate, or at one instant, or moves from one to the next, also while connections
// between regions are reset. An isolated region, a killed node, and a Redis that is killed or
// hangs do not change the other regions' exchange.
func TestRegionsShareLimits(t *testing.T) {
	t.Parallel()
	g := newGlobe(t)
	everywhere := func(client int, _ float64) int { return client }
	windows := 1
	if soak() {
		windows = 6
	}
	t.Run("a request waits for no other region", func(t *testing.T) { g.in(t).isAsFast("/here", "/there") })
	t.Run("three times the limit", func(t *testing.T) {
		g := g.in(t)
		g.both(windows+1, 0.97, g.names, everywhere)
	})
	t.Run("demand moves", func(t *testing.T) {
		g := g.in(t)
		g.both(windows, 0.9, g.names, func(_ int, now float64) int { return int(2*now) % 3 })
	})
	t.Run("connections are reset", func(t *testing.T) {
		g := g.in(t)
		stop := g.resets()
		defer stop()
		g.both(windows, 0.5, g.names, everywhere)
	})
	t.Run("everything at once", func(t *testing.T) { g.in(t).isAttacked() })
	t.Run("a region cut off", func(t *testing.T) { g.in(t).isCutOff() })
	t.Run("parts killed", func(t *testing.T) { g.in(t).partsDie() })
}

// If a region's nodes and Redis die together, only its own part of a limit in escrow is lost,
// and nothing else changes for the others.
func TestARegionDies(t *testing.T) {
	t.Parallel()
	g := newGlobe(t)
	var dies sync.Once
	g.both(2, 0.65, g.names[:2], func(client int, now float64) int {
		if client < 2 {
			return client
		}
		if now >= 0.5 {
			dies.Do(func() {
				for _, n := range g.nodes[2] {
					n.Kill()
				}
				g.redis[2].Kill()
			})
			return -1
		}
		return 2
	})
}

// isAsFast compares requests under a limit that regions share with those under the same limit
// of one region, alternately.
func (g *globe) isAsFast(ofOne, ofAll string) {
	const who = "203.0.113.1"
	n, c := 1000, client()
	if soak() {
		n = 20_000
	}
	defer c.CloseIdleConnections()
	took := map[string][]time.Duration{}
	for i := range 2*n + 200 {
		path := []string{ofOne, ofAll}[i%2]
		began := time.Now()
		status, err := get(c, g.nodes[0][0].Public, path, who)
		require.NoError(g, err)
		require.Equal(g, http.StatusOK, status)
		if i >= 200 { // both are warm
			took[path] = append(took[path], time.Since(began))
		}
	}
	at := func(path string, part int) time.Duration {
		slices.Sort(took[path])
		return took[path][len(took[path])*part/1000]
	}
	for _, part := range []int{500, 900, 990} {
		here, there := at(ofOne, part), at(ofAll, part)
		g.Logf("%.1f%% of %d requests within %s under a limit of one region, %s under the same limit of all: %+.1f%%",
			float64(part)/10, n, here, there, 100*(float64(there)/float64(here)-1))
	}
	if soak() {
		require.LessOrEqual(g, float64(at(ofAll, 500)), 1.03*float64(at(ofOne, 500)))
	}
}

// isCutOff isolates a region until it counts alone, and reconnects it.
func (g *globe) isCutOff() {
	const who, path, most = "203.0.113.2", "/cut", int64(globalFixed)
	kept := global.Share(limitOf(most, 24*time.Hour), 3)
	var passed [3]int64
	defer g.knowledge(path, who, &passed)
	for r := range g.nodes {
		passed[r] += g.ask(g.nodes[r][:], path, who, 200)
	}
	g.eventually("all know of each other", func() bool { return g.allKnow(path, who, passed, kept) })
	g.cut(2)
	for r := range 2 {
		passed[r] += g.ask(g.nodes[r][:], path, who, 150)
	}
	g.eventually("the others go on without it", func() bool { return g.knows(0, path, who, passed, kept) && g.knows(1, path, who, passed, kept) })
	// Alone, it measures against a third of the limit, which the known counts exceed.
	g.eventually("it is on its own", func() bool {
		alone := g.ask(g.nodes[2][:1], path, who, 1)
		passed[2] += alone
		return alone == 0
	})
	require.Zero(g, g.ask(g.nodes[2][:1], path, who, 20))

	g.heal(2)
	healed := time.Now()
	g.eventually("all know of each other again", func() bool { return g.allKnow(path, who, passed, kept) })
	g.Logf("healed after %s", time.Since(healed).Round(10*time.Millisecond))
	total := passed[0] + passed[1] + passed[2]
	for _, node := range g.nodes[2] { // Each in turn: asking both would use the limit up before the later one has it.
		g.eventually("it has the whole limit again", func() bool {
			n := g.ask([]*testenv.EdgeNode{node}, path, who, 1)
			passed[2] += n
			total += n
			return n == 1
		})
	}
	delay := g.delay(g.names...)
	began, asked := time.Now(), 0
	for denied := false; !denied; {
		n := g.ask(g.everyNode(), path, who, 120)
		asked += 120
		total += n
		denied = n == 0
	}
	times := float64(asked) / time.Since(began).Seconds() * (24 * time.Hour).Seconds() / float64(most)
	bound := global.OvershootBounds(limitOf(most, 24*time.Hour), 3, times, delay()+slack)
	g.Logf("%d passed of %d, bound %.0f", total, most, bound.Demand)
	require.GreaterOrEqual(g, total, most)
	require.LessOrEqual(g, float64(total), float64(most)+bound.Demand)
}

// partsDie kills a node, then another region's Redis, and suspends the third's.
func (g *globe) partsDie() {
	const who, path, most = "203.0.113.3", "/lost", int64(globalFixed)
	kept := global.Share(limitOf(most, 24*time.Hour), 3)
	var passed [3]int64
	defer g.knowledge(path, who, &passed)
	for r := range g.nodes {
		passed[r] += g.ask(g.nodes[r][:], path, who, 100)
	}
	g.eventually("all know of each other", func() bool { return g.allKnow(path, who, passed, kept) })

	g.nodes[0][1].Kill()
	for r := range g.nodes {
		passed[r] += g.ask(g.nodes[r][:1], path, who, 100)
	}
	g.eventually("all know of each other without a node", func() bool { return g.allKnow(path, who, passed, kept) })
	g.nodes[0][1].Start()
	g.nodes[0][1].WaitReady()

	g.redis[1].Kill()
	g.redis[1].Start()
	awaitRedis(g, g.nodes[1][:], path, who)
	before := passed
	g.eventually("what others let pass is charged to an empty Redis", func() bool {
		passed[1] += g.ask(g.nodes[1][:], path, who, 2) // a node notices at its next count
		c := g.counts(g.nodes[1][0], path, who)
		return c.Others[g.names[0]] >= before[0]-kept && c.Others[g.names[2]] >= before[2]-kept
	})
	g.eventually("nothing is charged twice, and nothing is missing", func() bool { return g.knows(0, path, who, passed, kept) && g.knows(2, path, who, passed, kept) })

	g.redis[2].Suspend()
	for r := range 2 {
		passed[r] += g.ask(g.nodes[r][:], path, who, 100)
	}
	g.eventually("the others do not notice that one's Redis hangs", func() bool {
		return g.knows(0, path, who, passed, kept) && g.knows(1, path, who, passed, passed[1])
	})
	g.redis[2].Resume()
	g.eventually("it is charged what others let pass meanwhile", func() bool {
		c := g.counts(g.nodes[2][0], path, who)
		return c.Others[g.names[0]] >= passed[0]-kept && c.Others[g.names[1]] >= passed[1]-kept
	})
}
