package redisstore_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/testenv"
	"github.com/weir-edge/weir/pkg/limiter/redisstore"
)

type shardNews struct {
	addr string
	err  error
}

// awaitNews returns the next shard event that the store reports.
func awaitNews(t *testing.T, heard <-chan shardNews) shardNews {
	t.Helper()
	select {
	case n := <-heard:
		return n
	case <-time.After(time.Minute):
		t.Fatal("no event from the store")
		return shardNews{}
	}
}

// Every master is watched from the start: its loss is noticed without a request.
func TestIdleClusterNoticesItsLoss(t *testing.T) {
	cluster := testenv.Cluster(t, testenv.Options{})
	heard := make(chan shardNews, 100)
	s := open(t, redisstore.Config{Mode: redisstore.Cluster, Addrs: cluster.Addrs(), Timeout: patience, Hooks: redisstore.Hooks{
		Shard: func(addr string, err error) { heard <- shardNews{addr, err} },
	}})
	awaitTopology(t, s) // one request, to one master
	masters := cluster.Addrs()[:3]
	for _, n := range cluster.Nodes {
		n.Kill()
	}
	down := map[string]bool{}
	for len(down) < len(masters) {
		n := awaitNews(t, heard)
		require.Error(t, n.err, n.addr)
		require.Contains(t, masters, n.addr, "the masters report it before the topology does")
		down[n.addr] = true
	}
}

// The reported cause tells an operator what to repair.
func TestCauseOfAStoreThatIsDown(t *testing.T) {
	plain := testenv.Redis(t, testenv.Options{})
	secret := testenv.Redis(t, testenv.Options{Password: "horse"})
	overTLS := testenv.Redis(t, testenv.Options{TLS: true})
	f := func(name, want string, c redisstore.Config) {
		t.Run(name, func(t *testing.T) {
			heard := make(chan shardNews, 100)
			c.Timeout = patience
			c.Hooks.Shard = func(addr string, err error) { heard <- shardNews{addr, err} }
			open(t, c)
			require.Regexp(t, want, awaitNews(t, heard).err.Error())
			require.Empty(t, heard, "once")
		})
	}
	f("no password", "NOAUTH", redisstore.Config{Mode: redisstore.Single, Addrs: []string{secret.Addr}})
	f("wrong password", "WRONGPASS", redisstore.Config{Mode: redisstore.Single, Addrs: []string{secret.Addr}, Password: func() string { return "cow" }})
	f("no cluster", "cluster support disabled; for a single server set store.redis.mode to single$", redisstore.Config{Mode: redisstore.Cluster, Addrs: []string{plain.Addr}})
	f("no TLS", "EOF|connection reset", // depends on what the server had read
		redisstore.Config{Mode: redisstore.Single, Addrs: []string{overTLS.Addr}})
}

// A master that begins to answer only with errors counts as down.
func TestPasswordChangedUnderANode(t *testing.T) {
	server := testenv.Redis(t, testenv.Options{Password: "horse"})
	heard, looked := make(chan shardNews, 100), make(chan struct{}, 100)
	s := open(t, redisstore.Config{
		Mode: redisstore.Single, Addrs: []string{server.Addr}, Timeout: patience, Password: func() string { return "horse" },
		Hooks: redisstore.Hooks{
			Shard:    func(addr string, err error) { heard <- shardNews{addr, err} },
			Eviction: func(string, *redisstore.Eviction) { looked <- struct{}{} },
		},
	})
	awaitTopology(t, s)
	<-looked // the first probe is answered: killing its connection would be the news
	admin := server.Client()
	require.NoError(t, admin.ConfigSet(t.Context(), "requirepass", "battery").Err())
	require.NoError(t, admin.Do(t.Context(), "client", "kill", "type", "normal", "skipme", "yes").Err())
	n := awaitNews(t, heard)
	require.ErrorContains(t, n.err, "WRONGPASS")
}
