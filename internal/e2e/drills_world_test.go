package e2e

import (
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"

	"github.com/weir-edge/weir/internal/testenv"
)

var (
	// leaving is what OPERATIONS promises for clients that honor the TTL.
	leaving   = steps{{"out of DNS within", outWithin}, {"the TTL", dnsTTL}, looking}
	nextAsked = steps{{"a resolver asks the next router after", lookupTimeout}, looking}
)

func worldDrills() []drill {
	const noted = " (with a budget of 5 s: a killed process cannot show which it missed)"
	const cuts = "sent to it until DNS changed"
	return []drill{
		{breaks: "a PoP lost: both edges killed", guarantee: "its clients go to the next PoP of the region and keep their counts" + noted, budget: generous, within: leaving, cuts: cuts,
			run: func(t *testing.T, x *exercise) {
				w := x.world(t)
				x.loses(w, w.pop("ams1"))
				x.exceed()
				x.comesBack(w, w.pop("ams1").nodes)
			}},
		{breaks: "a region lost: edges, Redis and Consul killed", guarantee: "its clients go to the next region, which counts separately; when the region returns, its Redis starts over" + noted,
			budget: generous, within: leaving, cuts: cuts, forgives: "counted by the other region, then again by the first", run: func(t *testing.T, x *exercise) {
				w := x.world(t)
				eu := w.regions[0]
				x.loses(w, w.pop("ams1"), w.pop("fra1"))
				x.exceed()
				there := x.counted()
				eu.consul.Start()
				eu.redis.Start()
				x.comesBack(w, eu.nodes)
				x.forgets(there)
			}},
		{breaks: "one of two routers killed", guarantee: "clients ask the other router", short: true, within: nextAsked, run: func(t *testing.T, x *exercise) {
			w := x.world(t)
			x.changes(w.routers[0].kill)
			x.moves()
			x.recovered = time.Duration(w.slowest.Load())
			x.exceed()
		}},
	}
}

// drillWorld is a world whose regions count in Redis, with two routers.
type drillWorld struct {
	*world
	slowest atomic.Int64 // the slowest lookup so far, in ns
}

// world loads the public addresses of two regions, as DNS returns them.
func (x *exercise) world(t *testing.T) *drillWorld {
	t.Helper()
	backend := origin(t, nil)
	w := &drillWorld{}
	w.world = openWorld(t, []land{{"eu", []string{"ams1", "fra1"}}, {"us", []string{"iad1"}}}, func(s *site) string {
		s.redis = testenv.Redis(t, testenv.Options{})
		return redisConfig(backend, "single", []string{s.redis.Addr}, max(budget, x.budget), map[string]int{"eu": 4, "us": 2}[s.name], "")
	})
	w.apply(drillRules)
	w.startRouter()
	w.startRouter()
	w.settles()
	for _, p := range w.pops {
		for i, n := range p.nodes {
			n.WaitReady()
			eventually(t, testenv.Patience, "the balancer has noticed", p.ready[i].Load)
		}
	}
	x.ask = w.visitors()
	x.begin(w.nodes())
	// To a router, only an edge that it has reached can be gone. It probes each within a second of its check passing.
	for _, s := range w.regions {
		eventually(t, testenv.Patience, "every edge passes its check", func() bool {
			passing, _, err := s.consul.Client().Health().Service("weir-edge", "", true, nil)
			return err == nil && len(passing) == len(s.nodes)
		})
	}
	x.moves()
	return w
}

// visitors are European clients, one a worker, that honor the TTL. They ask the routers in turn, and retry
// nothing.
func (w *drillWorld) visitors() func(*fasthttp.Client, int, string, string) (int, error) {
	type known struct {
		addrs []string
		until time.Time
	}
	var all [workers]known // each belongs to one worker
	return func(c *fasthttp.Client, worker int, path, who string) (int, error) {
		k := &all[worker]
		if now := time.Now(); now.After(k.until) {
			addrs, err := w.resolve(europe)
			if took := int64(time.Since(now)); took > w.slowest.Load() {
				w.slowest.Store(took)
			}
			if err != nil {
				return 0, err
			}
			k.addrs, k.until = addrs, now.Add(dnsTTL)
		}
		return get(c, fmt.Sprintf("%s:%d", k.addrs[0], w.port), path, who)
	}
}

// loses kills all edges of these PoPs, and the region's Redis and Consul if it has no other PoP. It waits until
// clients have left.
func (x *exercise) loses(w *drillWorld, lost ...*pop) {
	x.t.Helper()
	left, all := w.nodes(), len(lost) == 2
	x.changes(func() {
		for _, p := range lost {
			for _, n := range p.nodes {
				x.kills(n)
				left = slices.DeleteFunc(left, func(other *testenv.EdgeNode) bool { return other == n })
			}
		}
		if all {
			lost[0].region.redis.Kill()
			lost[0].region.consul.Kill()
		}
	})
	if all {
		x.forgets(nil) // the next region has its own counts
	}
	x.nodes = left
	w.within("it is out of DNS", outWithin, func() bool { return w.answer(europe) != lost[0].addr && w.answer(europe) != lost[len(lost)-1].addr })
	x.moves()
	x.recovered = time.Unix(0, x.lastCut.Load()).Sub(x.since)
	require.Positive(x.t, x.cut.Load(), "no request was cut off, so nothing was tested")
	x.killing.Store(false)
}

// comesBack restarts edges and waits until clients are back at their own PoP.
func (x *exercise) comesBack(w *drillWorld, nodes []*testenv.EdgeNode) {
	x.t.Helper()
	for _, n := range nodes {
		n.Start()
	}
	for _, n := range nodes {
		n.WaitReady()
	}
	w.within("it is back in DNS", backWithin, func() bool { return w.answer(europe) == w.pop("ams1").addr })
	x.nodes = w.nodes()
	x.moves()
	x.exceed()
}

// moves waits until every client has asked DNS again.
func (x *exercise) moves() { x.t.Helper(); x.answers(int64(workers * (dnsTTL + time.Second) / pace)) }
