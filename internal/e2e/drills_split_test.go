package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/testenv"
)

// A master that no longer hears from the majority refuses to decide. Redis pings each other
// node at least once in half of cluster-node-timeout, suspects one that has not answered for
// all of it, and checks ten times per second.
func lonelyFor(nodeTimeout time.Duration) time.Duration {
	return nodeTimeout + nodeTimeout/2 + 200*time.Millisecond
}

// split isolates a master and a node, together with greedy clients whose counts are on that
// master. The master decides for its node until it notices; its promoted replica has none of
// those decisions.
func split(t *testing.T, x *exercise) {
	island := testenv.NewIsland(t)
	c := testenv.Cluster(t, testenv.Options{Island: island})
	backend := origin(t, nil)
	config := redisConfig(backend, "cluster", c.Addrs(), budget, drillNodes, "")
	lonely := island.Edge(t, config, drillRules, strings.TrimPrefix(backend, "http://"))
	x.begin([]*testenv.EdgeNode{lonely, testenv.Edge(t, config, drillRules)})

	key := ofTight(t, x)
	var there []string // clients whose keys are on the island's master
	for i := 0; len(there) < greedy/2; i++ {
		who := fmt.Sprintf("198.51.100.%d", 150+i)
		if c.MasterOf(strings.Replace(key, "198.51.100.100", who, 1)) == c.Nodes[0] {
			there = append(there, who)
		}
	}
	decides := func(source string) func(n *testenv.EdgeNode) bool {
		return func(n *testenv.EdgeNode) bool {
			e, err := explain(n, "/", there[0])
			return err == nil && e.Rules[0].Source == source
		}
	}
	kept := x.replicated(1, c.Nodes[0])
	x.joins(there...)
	x.changes(island.Cut)
	// One decision without the master proves nothing: a missed budget has the same effect.
	eventually(t, testenv.Patience, "the lonely master gives up", func() bool {
		info, err := c.Nodes[0].Client().ClusterInfo(t.Context()).Result()
		return err == nil && strings.Contains(info, "cluster_state:fail")
	})
	alone := time.Since(x.since)
	x.forgets(kept)
	t.Logf("the lonely master decided for %s", elapsed(alone))
	if long() {
		require.LessOrEqual(t, alone, lonelyFor(c.NodeTimeout)+looking.most)
	}
	eventually(t, testenv.Patience, "the majority has a master", func() bool { return decides("redis")(x.nodes[1]) })
	x.answers(800)
	x.changes(island.Mend)
	x.recovers("one master decides for both", decides("redis"))
}
