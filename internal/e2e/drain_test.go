package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/testenv"
)

// The subtests share one world, which loses its parts one by one and recovers them, because
// starting it takes as long as any of them.
func TestRegions(t *testing.T) {
	t.Parallel()
	w := startWorld(t)
	t.Run("drain", func(t *testing.T) { w.drains(t) })
	t.Run("rolling upgrade", func(t *testing.T) { w.upgrades(t) })
	t.Run("spill", func(t *testing.T) { w.spills(t) })
	t.Run("loss of a pop", func(t *testing.T) { w.losesPoP(t) })
	t.Run("loss of a region", func(t *testing.T) { w.losesRegion(t) })
	t.Run("loss of everything", func(t *testing.T) { w.losesAll(t) })
}

// No client's request fails during a drain, and none arrives after the TTL.
func (w *world) drains(t *testing.T) {
	ams, fra := w.pop("ams1"), w.pop("fra1")
	v := w.visit(europe)
	began := time.Now()
	out := w.good("drain", "ams1", "--message", "kernel update", "--by", "ann", "--yes", "--ttl", dnsTTL.String())
	ended := time.Now()
	t.Logf("drain took %s", ended.Sub(began).Round(10*time.Millisecond))
	require.Contains(t, out, "ams1 is drained by ann")
	require.Equal(t, fra.addr, w.answer(europe))
	last := time.Unix(0, ams.last.Load())
	require.True(t, last.Before(ended), "a client came when the drain had ended")
	promised(t, "the last client of a drained PoP", last.Sub(began), dnsTTL+2*time.Second)
	require.Contains(t, w.good("dns", "explain", "--client", "198.51.100.7"), "ams1 is drained by ann: kernel update")
	require.Contains(t, w.good("status"), "ams1 is drained by ann")
	w.good("undrain", "ams1", "--yes")
	w.within("ams1 is back", 2*time.Second, func() bool { return w.answer(europe) == ams.addr })
	back := time.Now()
	eventually(t, testenv.Patience, "clients are back", func() bool { return time.Unix(0, ams.last.Load()).After(back) })
	v.none(t, "a drain and its end")
}

// Each edge restarts while clients keep sending: the answers do not change.
func (w *world) upgrades(t *testing.T) {
	v, others := w.visit(europe), w.visit(america)
	flapped := w.watch(europe, w.pop("ams1").addr)
	names := []string{"ams1", "iad1"}
	if soak() {
		names = append(names, "fra1", "sin1")
	}
	began := time.Now()
	for _, name := range names {
		p := w.pop(name)
		all := len(p.region.nodes)
		back := fmt.Sprintf("%d of %d edges passing", all, all) // an edge that has not registered again does not count as failing
		for i, n := range p.nodes {
			n.Terminate()
			n.Start()
			n.WaitReady()
			eventually(t, testenv.Patience, "the balancer and Consul notice", func() bool {
				return p.ready[i].Load() && strings.Contains(w.good("status", "--region", p.region.name), back)
			})
		}
	}
	t.Logf("%d edges in %s", 2*len(names), time.Since(began).Round(10*time.Millisecond))
	for _, name := range names {
		require.Nil(t, w.pop(name).sentAway.Load(), "the balancer found no edge")
	}
	require.Zero(t, flapped(), "an answer without the PoP that always had an edge")
	v.none(t, "a rolling upgrade")
	others.none(t, "a rolling upgrade elsewhere")
}

// watch counts the answers that differ from want.
func (w *world) watch(network, want string) (stop func() int64) {
	var others atomic.Int64
	done := make(chan struct{})
	var all sync.WaitGroup
	all.Go(func() {
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
				if w.answer(network) != want {
					others.Add(1)
				}
			}
		}
	})
	end := sync.OnceFunc(func() { close(done); all.Wait() })
	w.t.Cleanup(end)
	return func() int64 { end(); return others.Load() }
}

// A PoP that sheds hands some networks to the next one, and takes them back.
func (w *world) spills(t *testing.T) {
	ams := w.pop("ams1")
	done := make(chan struct{})
	var all sync.WaitGroup
	for i := range 60 {
		all.Go(func() {
			c := client()
			defer c.CloseIdleConnections()
			for {
				select {
				case <-done:
					return
				default:
				}
				if status, err := get(c, ams.nodes[i%2].Public, "/slow/x", fmt.Sprintf("198.51.100.%d", i)); err != nil || status == http.StatusServiceUnavailable {
					<-time.After(20 * time.Millisecond) // a client with a shorter wait would only measure the node
				}
			}
		})
	}
	stop := sync.OnceFunc(func() { close(done); all.Wait() })
	defer stop()
	const networks = 64 // all of ams1
	given := func() (n int) {
		for i := range networks {
			if w.answer(fmt.Sprintf("198.51.%d.0/24", i)) != ams.addr {
				n++
			}
		}
		return n
	}
	share := 0
	w.within("some networks go to the next", 20*time.Second, func() bool {
		share = given()
		return share > 0 && share < networks
	})
	t.Logf("%d of %d networks were given away", share, networks)
	eventually(t, testenv.Patience, "dns explain says so", func() bool {
		return strings.Contains(w.good("dns", "explain", "--client", "198.51.100.7"), "ams1 receives ")
	})
	stop()
	w.within("ams1 keeps its clients again", 30*time.Second, func() bool {
		return given() == 0 && !strings.Contains(w.good("dns", "explain", "--client", "198.51.100.7"), "ams1 receives")
	})
}

// All edges of a PoP die at once.
func (w *world) losesPoP(t *testing.T) {
	ams, fra := w.pop("ams1"), w.pop("fra1")
	v, others := w.visit(europe), w.visit(america)
	lost := time.Now()
	for _, n := range ams.nodes {
		n.Kill()
	}
	w.within("ams1 is out", outWithin, func() bool { return w.answer(europe) == fra.addr })
	eventually(t, testenv.Patience, "clients have left", func() bool { return time.Since(time.Unix(0, ams.last.Load())) > time.Second })
	v.brief(t, "loss of a pop", lost)
	for _, n := range ams.nodes {
		n.Start()
	}
	for _, n := range ams.nodes {
		n.WaitReady()
	}
	w.within("ams1 is back", backWithin, func() bool { return w.answer(europe) == ams.addr })
	others.none(t, "elsewhere")
}

// A region's edges and its Consul die at once.
func (w *world) losesRegion(t *testing.T) {
	ams, iad := w.pop("ams1"), w.pop("iad1")
	eu := ams.region
	v, others := w.visit(europe), w.visit(america)
	lost := time.Now()
	eu.consul.Kill()
	for _, n := range eu.nodes {
		n.Kill()
	}
	w.within("eu is out", outWithin, func() bool { return w.answer(europe) == iad.addr })
	eventually(t, testenv.Patience, "clients have left", func() bool {
		return time.Since(time.Unix(0, ams.last.Load())) > time.Second && time.Since(time.Unix(0, w.pop("fra1").last.Load())) > time.Second
	})
	v.brief(t, "loss of a region", lost)
	out, _, status := w.regionctl("status")
	require.Equal(t, 3, status, out)
	require.Contains(t, out, "1 region not known")
	_, said, status := w.regionctl("drain", "ap1", "--message", "x", "--yes")
	require.Equal(t, 2, status, said)

	eu.consul.Start()
	for _, n := range eu.nodes {
		n.Start()
	}
	for _, n := range eu.nodes {
		n.WaitReady()
	}
	w.within("eu is back", backWithin, func() bool { return w.answer(europe) == ams.addr })
	others.none(t, "elsewhere")
}

// When every PoP is down, clients get every address rather than none.
func (w *world) losesAll(t *testing.T) {
	var all []string
	for _, p := range w.pops {
		all = append(all, p.addr)
		for _, n := range p.nodes {
			n.Kill()
		}
	}
	w.within("all addresses are answered", outWithin, func() bool {
		addrs, err := w.resolve(europe)
		return err == nil && len(addrs) == len(all)
	})
	addrs, err := w.resolve(america)
	require.NoError(t, err)
	require.ElementsMatch(t, all, addrs)
}

// A limit counts per region: a client that moves can use it once in each, and only once however
// it moves within one.
func TestLimitsOfAClientThatMoves(t *testing.T) {
	t.Parallel()
	rules := "rules:\n  - {id: fixed, key: [client_ip], algorithm: fixed_window, limit: 50, window: " + testenv.LongWindow() + "}\n"
	const who = "198.51.100.7"
	backend, pops, redis := origin(t, nil), map[string]*testenv.EdgeNode{}, map[string]*testenv.Server{}
	var all []*testenv.EdgeNode
	for _, at := range [][2]string{{"eu", "ams1"}, {"eu", "fra1"}, {"us", "iad1"}, {"ap", "sin1"}} {
		region, pop := at[0], at[1]
		nodes := 1
		if region == "eu" {
			nodes = 2
		}
		if redis[region] == nil {
			redis[region] = testenv.Redis(t, testenv.Options{})
		}
		config := redisConfig(backend, "single", []string{redis[region].Addr}, generous, nodes, "")
		pops[pop] = testenv.Edge(t, fmt.Sprintf("node: {id: %s-1, region: %s, pop: %s}\n%s", pop, region, pop, config), rules)
		all = append(all, pops[pop])
	}
	awaitRedis(t, all, "/", who)
	total := 0
	spend := func(n, want int, names ...string) {
		t.Helper()
		var nodes []*testenv.EdgeNode
		for _, name := range names {
			nodes = append(nodes, pops[name])
		}
		got := statuses(t, nodes, "/", who, 20, n)
		require.Equal(t, want, got[http.StatusOK], "%v: %v", names, got)
		require.Equal(t, n-want, got[http.StatusTooManyRequests], "%v: %v", names, got)
		total += want
	}
	spend(40, 40, "ams1")
	spend(40, 10, "fra1")
	spend(100, 0, "ams1", "fra1")
	spend(200, limit, "iad1")
	spend(20, 0, "ams1") // what was used stays used after the return
	spend(200, limit, "sin1")
	spend(200, 0, "iad1", "fra1", "sin1", "ams1")
	require.Equal(t, 3*limit, total)
	t.Logf("a client that moves passed %d times: %d in each of 3 regions", total, limit)
}
