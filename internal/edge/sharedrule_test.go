package edge

import (
	"fmt"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/edge/config"
	"github.com/weir-edge/weir/internal/edge/decide"
	"github.com/weir-edge/weir/internal/testenv"
	"github.com/weir-edge/weir/pkg/limiter"
)

// onCluster starts nodes that share a Redis Cluster.
func onCluster(t *testing.T, count int, rules string) (nodes []*node) {
	cluster := testenv.Cluster(t, testenv.Options{})
	for range count {
		n := start(t, setup{rules: rules, config: func(c *config.Config) {
			c.Store.Kind, c.Store.Redis.Mode, c.Store.Redis.Addrs = "redis", "cluster", cluster.Addrs()
			c.Store.Timeout = 10 * time.Second // so that a loaded machine does not look like a broken store
		}})
		nodes = append(nodes, n)
	}
	return nodes
}

// of returns a client's request for a tenant, which a node has not decided.
func (n *node) of(client, tenant string) *decide.Request {
	r, err := n.matchDescribed(n.rules.running.Load(), url.Values{"client": {client}, "header": {"X-Tenant:" + tenant}})
	if err != nil {
		panic(err)
	}
	return r
}

// passes lets a node decide such a request, without the shedder.
func (n *node) passes(client, tenant string) bool {
	return n.decider.Check(n.of(client, tenant)) == decide.Pass
}

// left returns what Redis has left for a tenant, whatever the node remembers.
func (n *node) left(tenant string) int64 {
	n.t.Helper()
	r := n.of("203.0.113.1", tenant)
	checks := r.Match.Checks[:1]
	require.Equal(n.t, "tenant", checks[0].Limit.Rule)
	checks[0].Peek = true
	require.NoError(n.t, n.shared.Take(n.t.Context(), checks, &r.Decision))
	return r.Decision.Results[0].Remaining
}

// Clients of a tenant share a rule. One of them sends bursts, of which its own rule passes one
// request a second, so that the shared rule has to give back the charges of all others. The
// tenant's other clients are not refused because of that.
func TestOneClientDoesNotLockASharedRule(t *testing.T) {
	const (
		limit   = 100
		burst   = limit + 10
		others  = 80 // requests of other clients, fewer than the limit
		tenants = 4
		lasts   = 5 * time.Second
	)
	const rules = `
rules:
  - {id: tenant, key: ["header:X-Tenant"], algorithm: fixed_window, limit: %d, window: %s, consistency: %s}
  - {id: client, key: [client_ip], algorithm: fixed_window, limit: 1, window: 1s}`

	// attack returns how many requests of others were refused.
	attack := func(nodes []*node, spacing time.Duration, tenant string, cell int) (refused int64) {
		ctx, stop := t.Context(), make(chan struct{})
		var group sync.WaitGroup
		group.Go(func() {
			attacker := fmt.Sprintf("192.0.%d.%d", spacing/(5*time.Millisecond), cell)
			for round := 0; ; round++ {
				var members sync.WaitGroup
				for range burst {
					members.Go(func() { nodes[round%len(nodes)].passes(attacker, tenant) })
				}
				members.Wait()
				select {
				case <-stop:
					return
				case <-ctx.Done():
					return
				case <-time.After(spacing):
				}
			}
		})
		every := time.NewTicker(lasts / others)
		defer every.Stop()
		for i := range others {
			<-every.C
			if !nodes[i%len(nodes)].passes(fmt.Sprintf("198.%d.%d.%d", spacing/(5*time.Millisecond), cell, i), tenant) {
				refused++
			}
		}
		close(stop)
		group.Wait()
		return refused
	}
	for _, world := range []struct {
		nodes       int
		consistency string
	}{{1, "strict"}, {2, "strict"}, {1, "leased"}} {
		nodes := onCluster(t, world.nodes, fmt.Sprintf(rules, limit, testenv.LongWindow(), world.consistency))
		sweep := func(spacings ...time.Duration) {
			refused := make([]atomic.Int64, len(spacings))
			var group sync.WaitGroup
			for i, spacing := range spacings {
				for cell := range tenants {
					group.Go(func() { refused[i].Add(attack(nodes, spacing, fmt.Sprint(spacing, cell), cell)) })
				}
			}
			group.Wait()
			for i, spacing := range spacings {
				share := float64(refused[i].Load()) / (others * tenants)
				t.Logf("%d nodes, %s, bursts %s apart: %.1f%% of the others' requests refused", world.nodes, world.consistency, spacing, 100*share)
				for cell := range tenants {
					require.Positive(t, nodes[0].left(fmt.Sprint(spacing, cell)), "Redis counts fewer than the limit")
				}
				require.LessOrEqual(t, share, 0.02)
			}
		}
		sweep(0)
		sweep(10*time.Millisecond, 50*time.Millisecond, 110*time.Millisecond, 200*time.Millisecond, 330*time.Millisecond, 500*time.Millisecond, time.Second)
	}
}

// A flood on a blocked key costs Redis one decision for each time that a refusal is remembered,
// whether its requests are counted in one slot or in two.
func TestAFloodOnABlockedKeySeldomReachesRedis(t *testing.T) {
	n := onCluster(t, 1, fmt.Sprintf(`
rules:
  - {id: tenant, key: ["header:X-Tenant"], algorithm: fixed_window, limit: 9, window: %[1]s}
  - {id: client, key: [client_ip], algorithm: fixed_window, limit: 1, window: %[1]s}`, testenv.LongWindow()))[0]
	for _, tenant := range []string{"", "shared"} {
		client := "192.0.2.1" + fmt.Sprint(len(tenant))
		require.True(t, n.passes(client, tenant))
		began, requests, asked := time.Now(), 0, 0
		for asked < 40 {
			r := n.of(client, tenant)
			require.Equal(t, decide.Limited, n.decider.Check(r))
			at := slices.IndexFunc(r.Decision.Results, func(res limiter.Result) bool { return res.Source != limiter.SourceNone })
			if requests++; r.Decision.Results[at].Source == limiter.SourceRedis {
				asked++
			}
		}
		took := time.Since(began)
		t.Logf("%d requests in %s: Redis decided %d, one each %s", requests, took.Round(time.Millisecond), asked, (took / time.Duration(asked)).Round(time.Millisecond))
		require.LessOrEqual(t, asked, int(took/(25*time.Millisecond))+2)
		if tenant != "" {
			require.EqualValues(t, 8, n.left(tenant), "the shared rule is charged no more")
		}
	}
}
