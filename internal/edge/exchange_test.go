package edge

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/adminapi"
	"github.com/weir-edge/weir/internal/edge/config"
	"github.com/weir-edge/weir/internal/testenv"
	"github.com/weir-edge/weir/pkg/limiter"
	"github.com/weir-edge/weir/pkg/limiter/global"
)

var exchangeRules = `
rules:
  - {id: moving, key: [client_ip], algorithm: %s, limit: %d, window: ` + testenv.LongWindow() + `, scope: global}`

// exchangingRegions starts three regions of two nodes and a Redis each.
func exchangingRegions(t *testing.T, rules string) (regions [3][2]*node) {
	ports := testenv.FreePorts(t, 6)
	var list []config.PeerRegion
	for r := range regions {
		region := config.PeerRegion{Name: fmt.Sprintf("r%d", r)}
		for i := range regions[r] {
			region.Nodes = append(region.Nodes, config.PeerNode{ID: fmt.Sprintf("r%d-%d", r, i), Address: fmt.Sprintf("127.0.0.1:%d", ports[2*r+i])})
		}
		list = append(list, region)
	}
	for r := range regions {
		redis := testenv.Redis(t, testenv.Options{})
		for i := range regions[r] {
			own := list[r].Nodes[i]
			regions[r][i] = start(t, setup{rules: rules, redis: redis, config: func(c *config.Config) {
				c.Node.Region, c.Node.ID, c.Peer.Regions = list[r].Name, own.ID, list
				c.Listen.Peer = &config.PeerListen{Address: own.Address, Insecure: true}
				c.Store.Timeout = 10 * time.Second // what a node lets pass alone is not told
			}})
		}
	}
	eventually(t, "all regions have heard of each other", func() bool {
		for _, nodes := range regions {
			for _, n := range nodes {
				lags := n.exchange.Lags()
				for _, lag := range lags {
					if len(lags) < 2 || lag > 5*time.Second {
						return false
					}
				}
			}
		}
		return true
	})
	return regions
}

// knows returns how old a region's knowledge of the others may be.
func knows(region [2]*node) time.Duration {
	return max(region[0].exchange.Delay(), region[1].exchange.Delay())
}

// mostWithin returns how many of these moments are within the same interval, at most.
func mostWithin(interval time.Duration, moments []time.Time) float64 {
	slices.SortFunc(moments, time.Time.Compare)
	most, first := 0, 0
	for last, at := range moments {
		for at.Sub(moments[first]) > interval {
			first++
		}
		most = max(most, last-first+1)
	}
	return float64(most)
}

// A client that asks all regions for three times its limit exceeds it by no more than the
// printed bound, and every region knows so. A reset reaches all of them.
func TestRegionsShareALimit(t *testing.T) {
	const limit = 900
	for _, algorithm := range []string{"fixed_window", "token_bucket"} {
		t.Run(algorithm, func(t *testing.T) {
			regions := exchangingRegions(t, fmt.Sprintf(exchangeRules, algorithm, limit))
			var passed [3]int64
			var delays [3]time.Duration // the age of what was known when a request passed, at most
			var moments [3][]time.Time  // when requests passed
			var group sync.WaitGroup
			began := time.Now()
			for r := range regions {
				group.Go(func() {
					for i := range limit {
						at, known := time.Now(), knows(regions[r])
						if regions[r][i%2].get("/").status == http.StatusOK {
							passed[r]++
							moments[r] = append(moments[r], at)
							delays[r] = max(delays[r], known+time.Since(at))
						}
					}
				})
			}
			group.Wait()
			took := time.Since(began)
			sum := passed[0] + passed[1] + passed[2]
			l := regions[0][0].rules.LimitOf("moving", "")
			delay := max(global.UsualDelay, slices.Max(delays[:])) + time.Second // a node's counts may be late, too
			rate := mostWithin(delay, slices.Concat(moments[:]...)) / delay.Seconds() * l.Window.Seconds() / limit
			bound := global.OvershootBounds(l, 3, rate, delay)
			t.Logf("%d passed of %d in %s: %v; at most %s late; bound %.0f", sum, limit, took, passed, delay, bound.Demand)
			require.GreaterOrEqual(t, sum, int64(limit))
			require.LessOrEqual(t, float64(sum), limit+bound.Demand+float64(limit)*took.Seconds()/l.Window.Seconds())

			eventually(t, "every region counts nearly all", func() bool {
				kept := 2 * global.Share(l, 3)
				for _, nodes := range regions {
					g := nodes[0].explained("moving", "127.0.0.1", "").Global
					known := g.Own
					for _, n := range g.Others {
						known += n
					}
					if g.Regions != 3 || known > sum || known < sum-kept {
						return false
					}
				}
				return true
			})
			var g adminapi.Global
			require.NoError(t, json.Unmarshal([]byte(regions[0][0].operate("GET", adminapi.PathGlobal).body), &g))
			require.Equal(t, "moving", g.Rules[0].Rule)
			require.EqualValues(t, limit, g.Rules[0].Limit)
			require.Equal(t, []string{"r1", "r2"}, []string{g.Others[0].Region, g.Others[1].Region})
			require.Positive(t, regions[0][0].metric(`weir_global_keys{state="kept"}`)+regions[0][1].metric(`weir_global_keys{state="kept"}`))

			a := regions[1][0].operate("DELETE", "/v1/limits?rule=moving&client=127.0.0.1")
			require.Equal(t, http.StatusOK, a.status, a.body)
			for r, nodes := range regions {
				// The other node may still remember its own refusals.
				left := max(nodes[0].remaining("moving", "127.0.0.1"), nodes[1].remaining("moving", "127.0.0.1"))
				require.Greater(t, left, int64(limit/2), "region %d", r)
			}
		})
	}
}

// A node that cannot reach other regions says so.
func TestGlobalRuleWithoutPeers(t *testing.T) {
	n := start(t, setup{rules: fmt.Sprintf(exchangeRules, "fixed_window", 5)})
	require.Len(t, n.logs.lines(t, "rules with scope: global apply to this region only; set listen.peer on every node"), 1)
	require.EqualValues(t, 1, n.explained("moving", "127.0.0.1", "").Global.Regions)
	require.Contains(t, n.operate("GET", adminapi.PathGlobal).body, `"alone": "listen.peer is not set"`)
	require.Equal(t, limiter.PartitionShare, n.rules.LimitOf("moving", "").Global.OnPartition)
	require.Nil(t, n.rules.LimitOf("other", ""))
}
