package edge

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/edge/config"

	"github.com/weir-edge/weir/internal/adminapi"
	"github.com/weir-edge/weir/internal/testenv"
	"github.com/weir-edge/weir/pkg/limiter"
)

var followingRules = `rules: [{id: clients, key: [client_ip], algorithm: fixed_window, limit: 100, window: ` + testenv.LongWindow() + `, under_load: {from: 0.5, share: 0.2}}]`

// fullByOne lets a single request in flight fill the origin.
const fullByOne = "enabled: false\nsignals: {cpu: off, sched_latency: off, upstream_wait: off, inflight: {low: 0, high: 1}}\n"

// busyPair starts two nodes of one region, whose origin holds requests to /hold until release is
// called, and which wait that long for Redis.
func busyPair(t *testing.T, redis *testenv.Server, timeout time.Duration) (nodes []*node, release func()) {
	t.Helper()
	held, count := make(chan struct{}), 2
	release = sync.OnceFunc(func() { close(held) })
	for _, id := range []string{"first", "second"} {
		nodes = append(nodes, start(t, setup{
			rules: followingRules, redis: redis,
			origin: func(_ http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/hold" {
					<-held
				}
			},
			config: func(c *config.Config) {
				c.Node.ID, c.Store.Nodes, c.Store.Timeout = id, &count, timeout
				c.Shedder.Document = settings(t, fullByOne)
				c.TrustedProxies = []string{"127.0.0.1"}
			},
		}))
	}
	t.Cleanup(release) // before the nodes stop
	return nodes, release
}

// followed says what a region's limits follow from now on.
func followed(t *testing.T, redis *testenv.Server, thousandths int) {
	t.Helper()
	text := fmt.Sprintf("%d %d %d", time.Now().Unix(), thousandths, thousandths)
	require.NoError(t, redis.Client().HSet(t.Context(), "weir:{~load:default}", "value", text).Err())
}

// While the upstreams of both nodes are busy, both lower the limit alike; what is refused only for
// that stays demand; and afterwards clients may ask more again without waiting for the window.
func TestNodesLowerALimitTogether(t *testing.T) {
	redis := testenv.Redis(t, testenv.Options{})
	nodes, release := busyPair(t, redis, 10*time.Second)
	const client, forwarded = "192.0.2.1", "X-Forwarded-For: 192.0.2.1"
	var held sync.WaitGroup
	defer held.Wait()
	defer release()
	for _, n := range nodes {
		require.Equal(t, int64(100), n.explained("clients", client, "").Limit)
		held.Go(func() {
			if resp, err := n.client.Get("http://" + n.public + "/hold"); err == nil {
				resp.Body.Close()
			}
		})
	}
	for _, n := range nodes {
		eventually(t, "it is busy", func() bool { return n.inflight() == 1 })
		eventually(t, "both nodes count", func() bool { return n.metric(`weir_load_nodes{upstream="default"}`) == 2 })
	}
	eventually(t, "both say that they are full", func() bool {
		said, err := redis.Client().HMGet(t.Context(), "weir:{~load:default}", "n:first", "n:second").Result()
		return err == nil && strings.HasSuffix(fmt.Sprint(said[0]), " 1000") && strings.HasSuffix(fmt.Sprint(said[1]), " 1000")
	})
	followed(t, redis, limiter.FullLoad)
	for _, n := range nodes {
		eventually(t, "the limit is at its lowest", func() bool { return n.explained("clients", client, "").Limit == 20 })
		u := n.explained("clients", client, "").UnderLoad
		require.Equal(t, &adminapi.UnderLoad{From: 0.5, Share: 0.2, Utilization: 1, Step: 16, Steps: 16, Full: 100, Lowest: 20}, u)
		require.EqualValues(t, 1, n.metric(`weir_rules_lowered{upstream="default"}`))
		require.EqualValues(t, 1, n.metric(`weir_load_followed{upstream="default"}`))
		eventually(t, "it is in the log", func() bool { return len(n.logs.lines(t, "limits follow load")) > 0 })
	}

	passed := 0
	for i := range 30 {
		a := nodes[i%2].get("/", forwarded)
		require.Contains(t, a.header.Get("RateLimit-Policy"), `"clients";q=20;w=`)
		if a.status == http.StatusOK {
			passed++
		}
	}
	require.Equal(t, 20, passed, "the nodes count together, by the same limit")
	// The full limit would have let 80 more pass in a day, 40 at each node, of these some at once.
	for _, n := range nodes {
		require.Equal(t, 4.0, n.metric(`weir_load_wanted_total{upstream="default"}`))
		require.NotEmpty(t, n.logs.lines(t, "request limited"))
		require.EqualValues(t, 100, n.logs.lines(t, "request limited")[0]["full_limit"])
	}

	release()
	for _, n := range nodes {
		eventually(t, "the limit rises, and memory holds no refusal beyond a tick", func() bool { return n.get("/", forwarded).status == http.StatusOK })
	}
}

// A node whose Redis does not answer, or that has none, follows its own load.
func TestANodeAloneFollowsItsOwnLoad(t *testing.T) {
	redis := testenv.Redis(t, testenv.Options{})
	nodes, _ := busyPair(t, redis, time.Second)
	n := nodes[0]
	eventually(t, "it follows the region", func() bool { return n.metric(`weir_load_nodes{upstream="default"}`) == 2 })
	redis.Suspend()
	eventually(t, "it is alone", func() bool { return n.metric("weir_load_alone") == 1 })
	require.EqualValues(t, 1, n.metric(`weir_load_nodes{upstream="default"}`))
	redis.Resume()
	eventually(t, "it follows the region again", func() bool {
		return n.metric("weir_load_alone") == 0 && n.metric(`weir_load_nodes{upstream="default"}`) == 2
	})
}
