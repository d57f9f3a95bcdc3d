package e2e

import (
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/testenv"
	"github.com/weir-edge/weir/pkg/limiter/global"
)

// Regions whose clocks differ by 5 s keep both kinds of limits in windows of the same name. In
// the short form only Redis's clocks differ, because an edge with another clock takes minutes
// to build. A node whose clock differs from its own Redis's sometimes asks for rights of the
// wrong window, so it uses less of a limit.
func TestRegionsWithClocksApart(t *testing.T) {
	t.Parallel()
	ahead := [3]time.Duration{3 * time.Second, 0, -2 * time.Second}
	var clocks [3]*testenv.Clock
	windows, used := 1, 0.5
	var programs [3]string
	for i := range clocks {
		clocks[i] = testenv.NewClock(t)
		clocks[i].Set(ahead[i])
		if programs[i] = testenv.Program(t, "edge"); soak() {
			windows, used, programs[i] = 3, 0.9, clocks[i].EdgeProgram(t)
		}
	}
	g := globeOf(t, clocks, func(region, _ int) string { return programs[region] })
	g.ahead = ahead
	g.both(windows, used, g.names, func(client int, _ float64) int { return client })
}

// isAttacked sends more than the limit to all regions at the same instant, at the start of a
// window.
func (g *globe) isAttacked() {
	for path, more := range map[string]int64{
		"/steady": int64(global.OvershootBounds(limitOf(globalLimit, globalWindow), 3, 1, 0).Worst),
		"/escrow": 0,
	} {
		// On a busy machine an attack may outlast the window.
		g.eventually(path+" lets a part of an attack pass within one window", func() bool {
			passed := g.attack(path, "203.0.113.4")
			all := passed[0] + passed[1] + passed[2]
			g.Logf("%s: %d of %v passed in an instant, limit %d, printed worst case %d more", path, all, passed, globalLimit, more)
			require.LessOrEqual(g, all, globalLimit+more, path)
			return all > globalLimit/2
		})
	}
}

// attack returns how much each region admits in a window that has just begun.
func (g *globe) attack(path, who string) (passed [3]int64) {
	const callers, requests = 10, 30 // for each node: 600 in a region
	c := client()
	defer c.CloseIdleConnections()
	var mu sync.Mutex
	var all sync.WaitGroup
	begin, first := make(chan struct{}), windowOf(time.Now())+1
	for region := range g.nodes {
		for _, n := range g.nodes[region] {
			for range callers {
				all.Go(func() {
					_, _ = get(c, n.Public, "/none", who) // opens the connection
					<-begin
					for range requests {
						status, err := get(c, n.Public, path, who)
						if err == nil && status == http.StatusOK && windowOf(time.Now()) == first {
							mu.Lock()
							passed[region]++
							mu.Unlock()
						}
					}
				})
			}
		}
	}
	<-time.After(time.Until(time.Unix(0, first*int64(globalWindow))))
	close(begin)
	all.Wait()
	return passed
}
