package edge

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"sync"
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

// of returns a client's request for a tenant, which a node has not decided. The header says
// which rule counts the tenant.
func (n *node) of(client, header, tenant string) *decide.Request {
	return n.found(client, fields{header: {[]byte(tenant)}})
}

// passes lets a node decide such a request, without the shedder.
func (n *node) passes(client, header, tenant string) bool {
	return n.decider.Check(n.of(client, header, tenant)) == decide.Pass
}

// left returns what Redis has left for a tenant, whatever the node remembers.
func (n *node) left(header, tenant string) int64 {
	n.t.Helper()
	r := n.of("203.0.113.1", header, tenant)
	checks := r.Match.Checks[:1]
	require.Equal(n.t, strings.ToLower(header), checks[0].Limit.Rule)
	checks[0].Peek = true
	require.NoError(n.t, n.chain.Shared.Take(n.t.Context(), checks, &r.Decision))
	return r.Decision.Results[0].Remaining
}

const (
	tenantLimit = 100
	tenantRules = `
rules:
  - {id: strict, key: ["header:Strict"], algorithm: fixed_window, limit: %[1]d, window: %[2]s}
  - {id: leased, key: ["header:Leased"], algorithm: fixed_window, limit: %[1]d, window: %[2]s, consistency: leased}
  - {id: client, key: [client_ip], algorithm: fixed_window, limit: 1, window: 1s}`
)

// burst lets a client send bursts to nodes in turn, of more requests than the tenant's limit, and
// returns how long bursts were under way.
func burst(nodes []*node, spacing time.Duration, client, header, tenant string, stop <-chan struct{}) (underWay time.Duration) {
	for round := 0; ; round++ {
		began := time.Now()
		var members sync.WaitGroup
		for range tenantLimit + 10 {
			members.Go(func() { nodes[round%len(nodes)].passes(client, header, tenant) })
		}
		members.Wait()
		underWay += time.Since(began)
		select {
		case <-stop:
			return underWay
		case <-time.After(spacing):
		}
	}
}

// Clients of a tenant share a rule. One of them sends bursts, of which its own rule passes one
// request per second, so that the shared rule gives back the charges of all others. The tenant's
// other clients are not refused because of that, but for a few while a burst is under way, which
// takes the longer the slower the machine is.
func TestOneClientDoesNotLockASharedRule(t *testing.T) {
	const (
		others = 60 // requests of other clients; with the attacker's, fewer than the limit
		lasts  = 8 * time.Second
		most   = 25 * time.Second // that the attacker goes on if the machine is slow
	)
	kinds := []string{"Strict", "Strict", "Leased"}
	// attack returns the shares of the others' requests that were refused, and of the time in which
	// a burst was under way.
	attack := func(nodes []*node, spacing time.Duration, header, tenant, network string) (refused, underWay float64) {
		stop, began := make(chan struct{}), time.Now()
		end := sync.OnceFunc(func() { close(stop) })
		time.AfterFunc(most, end)
		var group sync.WaitGroup
		group.Go(func() {
			<-time.After(rand.N(time.Second)) // attackers do not all begin at once
			underWay = burst(nodes, spacing, network+".0", header, tenant, stop).Seconds()
		})
		every := time.NewTicker(lasts / others)
		defer every.Stop()
		for i := range others {
			<-every.C
			if !nodes[i%len(nodes)].passes(fmt.Sprint(network, ".", i+1), header, tenant) {
				refused++
			}
		}
		end()
		group.Wait()
		return refused / others, underWay / time.Since(began).Seconds()
	}
	for count := range 2 {
		nodes := onCluster(t, count+1, fmt.Sprintf(tenantRules, tenantLimit, testenv.LongWindow()))
		var refused, allowed float64 // sums over the spacings
		sweep := func(apart ...time.Duration) {
			refusals, ways := make([][]float64, len(apart)), make([][]float64, len(apart))
			var group sync.WaitGroup
			for i, spacing := range apart {
				refusals[i], ways[i] = make([]float64, len(kinds)), make([]float64, len(kinds))
				for cell, header := range kinds {
					tenant, network := fmt.Sprint(spacing, cell), fmt.Sprintf("10.%d.%d", spacing/(10*time.Millisecond), cell)
					group.Go(func() { refusals[i][cell], ways[i][cell] = attack(nodes, spacing, header, tenant, network) })
				}
			}
			group.Wait()
			for i, spacing := range apart {
				share, underWay := mean(refusals[i]), mean(ways[i])
				t.Logf("%d nodes, bursts %s apart, under way %.1f%% of the time: %.1f%% of the others' requests refused", len(nodes), spacing, 100*underWay, 100*share)
				for cell, header := range kinds {
					require.Positive(t, nodes[0].left(header, fmt.Sprint(spacing, cell)), "Redis counts fewer than the limit")
				}
				if spacing == 0 {
					underWay = 0 // what a node knows is refused charges nothing
				}
				require.LessOrEqual(t, share, 0.05+underWay, "the first bursts may hit a few of them")
				refused, allowed = refused+share, allowed+0.02+underWay
			}
		}
		sweep(0)
		sweep(10*time.Millisecond, 50*time.Millisecond, 110*time.Millisecond, 200*time.Millisecond, 330*time.Millisecond, 500*time.Millisecond, time.Second)
		require.LessOrEqual(t, refused, allowed, "2% in the mean, besides")
	}
}

func mean(shares []float64) (m float64) {
	for _, s := range shares {
		m += s / float64(len(shares))
	}
	return m
}

// A flood on a blocked key costs Redis one decision for each time that a refusal is remembered,
// whether its requests are counted in one slot or in two.
func TestAFloodOnABlockedKeySeldomReachesRedis(t *testing.T) {
	n := onCluster(t, 1, fmt.Sprintf(`
rules:
  - {id: strict, key: ["header:Strict"], algorithm: fixed_window, limit: 9, window: %[1]s}
  - {id: client, key: [client_ip], algorithm: fixed_window, limit: 1, window: %[1]s}`, testenv.LongWindow()))[0]
	for _, tenant := range []string{"", "shared"} {
		client := "192.0.2.1" + fmt.Sprint(len(tenant))
		require.True(t, n.passes(client, "Strict", tenant))
		began, requests, asked := time.Now(), 0, 0
		for asked < 40 && requests < 1_000_000 {
			r := n.of(client, "Strict", tenant)
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
			require.EqualValues(t, 8, n.left("Strict", tenant), "the shared rule is charged no more")
		}
	}
}

// fields are the headers of a request that nobody sent.
type fields map[string][][]byte

func (f fields) Header(name string) [][]byte         { return f[name] }
func (f fields) Cookie(string) (value []byte, n int) { return nil, 0 }

// found returns a request for / whose checks are found, and not decided.
func (n *node) found(client string, headers fields) *decide.Request {
	r := &decide.Request{Rules: n.rules.Running(), Client: netip.MustParseAddr(client), Method: []byte("GET"), Fields: headers}
	err := n.decider.ReadPath(r, []byte("/"))
	if err == nil {
		err = n.decider.FindChecks(r)
	}
	if err != nil {
		panic(err)
	}
	return r
}
