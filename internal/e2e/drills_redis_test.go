package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/testenv"
)

// alone runs a drill with one Redis server.
func alone(drill func(t *testing.T, x *exercise, s *testenv.Server)) func(*testing.T, *exercise) {
	return func(t *testing.T, x *exercise) {
		s := testenv.Redis(t, testenv.Options{})
		x.redis("single", []string{s.Addr}, "")
		drill(t, x, s)
	}
}

// spoilt runs a drill on a link that a toxic degrades.
func spoilt(toxic string) func(*testing.T, *exercise) {
	return func(t *testing.T, x *exercise) {
		p := link(t, testenv.Redis(t, testenv.Options{}).Addr)
		x.redis("single", []string{p.Listen}, "")
		x.changes(func() {
			_, err := p.Toxics.AddToxicJson(strings.NewReader(toxic))
			require.NoError(t, err)
		})
		x.falls()
		x.changes(func() { require.NoError(t, p.Toxics.RemoveToxic(t.Context(), "bad")) })
		x.returns()
	}
}

// lossy drops one in twenty segments between the nodes and Redis, each way. TCP resends them
// after 200 ms or more, far beyond the budget.
func lossy(t *testing.T, x *exercise) {
	front := testenv.Forward(t, testenv.Redis(t, testenv.Options{}).Addr)
	x.redis("single", []string{front.Addr}, "")
	x.changes(func() { require.NoError(t, front.Lose(5)) })
	x.sees("budgets are missed", func(n *testenv.EdgeNode) bool {
		return metrics(t, n, "weir_store_errors_total")[`weir_store_errors_total{kind="timeout"}`] > 0
	})
	x.answers(1600)
	x.changes(func() { require.NoError(t, front.Lose(0)) })
	x.returns()
}

// do sends a command that must succeed.
func do(t *testing.T, s *testenv.Server, args ...any) {
	t.Helper()
	require.NoError(t, s.Client().Do(context.Background(), args...).Err(), "%v", args)
}

// Parts of a recovery. A probe in progress when Redis returns may have to fail first.
var (
	looking = step{"polling", 100 * time.Millisecond} // by this test, every 10 ms over HTTP
	inTime  = step{"a decision", budget}
	probing = step{"a dial or probe and its pause", 250*time.Millisecond + budget + 50*time.Millisecond}
	redial  = step{"go-redis redials every", time.Second}
	learned = step{"topology read every", time.Second}

	atOnce     = steps{inTime, looking}
	afterProbe = steps{probing, inTime, looking}
	afterDial  = steps{redial, probing, inTime, looking}
	// election is a Redis Cluster's, by its documentation: a ping every second,
	// cluster-node-timeout, the suspicion spread by the next pings, then 500 ms and a random
	// wait up to the same before the vote.
	election = steps{{"a ping every", time.Second}, {"cluster-node-timeout", 2 * time.Second}, {"suspicion with pings every", time.Second}, {"election up to", time.Second}, learned, probing, inTime, looking}
)

// rejoin is how an isolated master learns that it was replaced.
var rejoin = steps{{"a link retried after", time.Second}, {"a ping every", time.Second}, learned, probing, inTime, looking}

func redisDrills() []drill {
	const local = "each node admits up to its share per client"
	return []drill{
		{breaks: "Redis killed, and started empty", guarantee: local + "; the count starts over", local: true, short: true,
			within: afterDial,
			run: alone(func(t *testing.T, x *exercise, s *testenv.Server) {
				x.changes(s.Kill)
				x.forgets(nil)
				x.falls()
				x.changes(s.Start)
				x.returns()
			})},
		{breaks: "Redis hung", guarantee: local, local: true,
			within: afterProbe,
			run: alone(func(t *testing.T, x *exercise, s *testenv.Server) {
				x.changes(s.Suspend)
				x.falls()
				x.changes(s.Resume)
				x.returns()
			})},
		{breaks: "Redis slow: every answer takes twice the budget", guarantee: local, local: true,
			within: afterProbe,
			run:    spoilt(fmt.Sprintf(`{"name":"bad","type":"latency","attributes":{"latency":%d}}`, 2*budget.Milliseconds()))},
		{breaks: "the link to Redis cut one way, from it", guarantee: local, local: true,
			within: afterProbe,
			run:    spoilt(`{"name":"bad","type":"timeout","stream":"downstream","attributes":{"timeout":0}}`)},
		{breaks: "the link to Redis cut one way, to it", guarantee: local, local: true,
			within: afterProbe,
			run:    spoilt(`{"name":"bad","type":"timeout","stream":"upstream","attributes":{"timeout":0}}`)},
		{breaks: "every connection to Redis reset", guarantee: local, local: true,
			within: afterDial,
			run:    spoilt(`{"name":"bad","type":"reset_peer","attributes":{"timeout":0}}`)},
		{breaks: "the link to Redis loses one in twenty packets, each way", guarantee: local, local: true, short: true, within: afterProbe, run: lossy},
		{breaks: "Redis full, without eviction", guarantee: local, local: true,
			within: atOnce,
			run: alone(func(t *testing.T, x *exercise, s *testenv.Server) {
				x.changes(func() { do(t, s, "config", "set", "maxmemory", "1") })
				x.fallsWriting()
				x.changes(func() { do(t, s, "config", "set", "maxmemory", "0") })
				x.returns()
			})},
		{breaks: "Redis read-only", guarantee: local, local: true,
			within: atOnce,
			run: alone(func(t *testing.T, x *exercise, s *testenv.Server) {
				x.changes(func() { do(t, s, "replicaof", "127.0.0.1", testenv.FreePorts(t, 1)[0]) })
				x.fallsWriting()
				x.changes(func() { do(t, s, "replicaof", "no", "one") })
				x.returns()
			})},
		{breaks: "SCRIPT FLUSH, twenty times", guarantee: "Redis decides every request", short: true,
			within: atOnce,
			run: alone(func(t *testing.T, x *exercise, s *testenv.Server) {
				for range 20 {
					x.answers(50)
					x.changes(func() { require.NoError(t, s.Client().ScriptFlush(context.Background()).Err()) })
				}
				x.returns()
			})},
		{breaks: "a counter replaced by a list (WRONGTYPE)", guarantee: "for that client, each node admits up to its share; then the count starts over", local: true,
			within: atOnce,
			run: alone(func(t *testing.T, x *exercise, s *testenv.Server) {
				const client = "198.51.100.100"
				e, err := explain(x.nodes[0], "/tight", client)
				require.NoError(t, err)
				key := e.Rules[0].Key
				x.changes(func() { do(t, s, "del", key); do(t, s, "lpush", key, "x") })
				x.forgets(nil, client)
				x.answers(800)
				x.changes(func() { do(t, s, "del", key) })
				x.recovers("Redis decides for that client", func(n *testenv.EdgeNode) bool {
					e, err := explain(n, "/tight", client)
					return err == nil && e.Rules[0].Source != "fallback"
				})
			})},
		{breaks: "all counters lost at once (FLUSHALL)", guarantee: "the count starts over",
			within: atOnce,
			run: alone(func(t *testing.T, x *exercise, s *testenv.Server) {
				x.flushes(s)
				x.returns()
			})},
		{breaks: "a planned promotion of a replica", guarantee: "Redis loses no count, and decides right after the handover", within: steps{{"Redis abandons a handover after", 5 * time.Second}, learned, probing, inTime, looking}, run: promotion},
		{breaks: "a cluster's master killed", guarantee: local + "; unreplicated counts are lost", local: true, within: election, run: clusterLoss(false)},
		{breaks: "a cluster's master hung", guarantee: local + "; unreplicated counts are lost", local: true, within: election, run: clusterLoss(true)},
		{breaks: "a cluster's master hung under a rule that fails closed, another pausing", guarantee: local + "; what is answered 503 uses up no limit; unreplicated counts are lost (with a budget of 200 ms: pauses last as long as that)", local: true, budget: 8 * budget, within: election, run: pausing},
		{breaks: "a cluster split: a master alone with a node", guarantee: local + "; decisions of the isolated master until it notices are lost", local: true, within: rejoin, run: split},
		{breaks: "a slot left open, then 200 slots moved to another master", guarantee: "Redis decides every request", within: steps{{"the redirect", budget}, inTime, looking}, run: slotOpen},
		{breaks: "Sentinel flapping: three failovers", guarantee: local + "; unreplicated counts are lost", local: true,
			within: append(steps{{"Sentinel abandons a failover after", 2 * time.Second}}, afterDial...), run: sentinelFlaps},
	}
}

// flushes deletes all counters.
func (x *exercise) flushes(s *testenv.Server) {
	x.t.Helper()
	x.changes(func() { do(x.t, s, "flushall") })
	x.forgets(nil)
}

// ofTight returns a greedy client's key.
func ofTight(t *testing.T, x *exercise) string {
	t.Helper()
	e, err := explain(x.nodes[0], "/tight", "198.51.100.100")
	require.NoError(t, err)
	return e.Rules[0].Key
}

func promotion(t *testing.T, x *exercise) {
	c := testenv.Cluster(t, testenv.Options{})
	x.redis("cluster", c.Addrs(), "")
	key := ofTight(t, x)
	old := c.MasterOf(key)
	x.changes(func() {
		for _, n := range c.Nodes {
			if replicaOf(n.Client().Info(context.Background(), "replication").Val(), old.Addr) {
				require.NoError(t, n.Client().ClusterFailover(context.Background()).Err())
			}
		}
	})
	eventually(t, testenv.Patience, "the replica is master", func() bool { return c.MasterOf(key) != old })
	x.returns()
}

func clusterLoss(hang bool) func(*testing.T, *exercise) {
	return func(t *testing.T, x *exercise) {
		c := testenv.Cluster(t, testenv.Options{})
		x.redis("cluster", c.Addrs(), "")
		e, err := explain(x.nodes[0], "/", victim)
		require.NoError(t, err)
		x.joins(newcomers()...)
		x.answers(200)
		old := c.MasterOf(e.Rules[0].Key)
		kept := x.replicated(1, c.Nodes[:3]...)
		x.changes(func() { take(old, hang) })
		x.forgets(kept)
		x.falls()
		eventually(t, testenv.Patience, "a replica is promoted", func() bool { return c.MasterOf(e.Rules[0].Key) != old })
		x.returns()
		if hang {
			old.Resume()
		}
	}
}

// slotOpen moves a greedy client's slot to another master, slowly, and others with redis-cli.
func slotOpen(t *testing.T, x *exercise) {
	c := testenv.Cluster(t, testenv.Options{})
	x.redis("cluster", c.Addrs(), "")
	key := ofTight(t, x)
	from, to := c.MasterOf(key), c.Nodes[0]
	if from == to {
		to = c.Nodes[1]
	}
	x.changes(func() {
		c.OpenSlot(key, to)
		for c.MoveKeys(key, to, 1) > 0 {
			x.answers(200)
		}
		x.answers(2000)
		c.CloseSlot(key, to)
		c.WaitHealthy() // redis-cli gives up if the nodes disagree
		c.Reshard(from, to, 200)
	})
	x.recovers("Redis decides for the moved client", func(n *testenv.EdgeNode) bool {
		e, err := explain(n, "/tight", "198.51.100.100")
		return err == nil && e.Rules[0].Source != "fallback"
	})
}

func sentinelFlaps(t *testing.T, x *exercise) {
	s := testenv.Sentinel(t, testenv.Options{})
	x.redis("sentinel", s.SentinelAddrs, ", master_name: "+s.MasterName)
	for i := range 3 {
		s.WaitHealthy()
		x.joins(fmt.Sprintf("198.51.100.%d", 150+i)) // the old master may learn of these after it was replaced
		kept := x.replicated(2, s.Master())
		x.since = time.Now()
		s.Failover()
		x.sees("Redis decides again", by("redis"))
		x.recovered = max(x.recovered, time.Since(x.since))
		s.WaitHealthy() // no node can write to the old master any more
		x.forgets(kept)
	}
	x.exceed()
}
