package edge

import (
	"context"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/edge/config"

	"github.com/weir-edge/weir/internal/testenv"
	"github.com/weir-edge/weir/pkg/limiter/redisstore"
)

// Metric, log and /readyz report the same for a store that rejects the password, with the
// cause.
func TestStoreDownForTheSameReasonEverywhere(t *testing.T) {
	redis := testenv.Redis(t, testenv.Options{Password: "horse"})
	n := start(t, setup{rules: ruleA, config: func(c *config.Config) {
		c.Store.Kind, c.Store.Redis.Mode, c.Store.Redis.Addrs = "redis", "single", []string{redis.Addr}
		c.Store.Timeout = 10 * time.Second // or a loaded machine gives another reason
	}})
	eventually(t, "the node notices", func() bool { return n.metric("weir_store_up") == 0 })
	require.Contains(t, n.operate("GET", "/readyz").body, "NOAUTH")
	require.Equal(t, 1, strings.Count(n.logs.String(), "store does not answer"), n.logs.String())
	require.Contains(t, n.logs.String(), "NOAUTH")
}

// A store that resets connections and comes back with another password is logged for both,
// and each once, though each connection has a port of its own.
func TestStoreDownForAnotherReason(t *testing.T) {
	n := start(t, setup{redis: testenv.Redis(t, testenv.Options{}), rules: ruleA})
	reset := func(port string) error {
		return fmt.Errorf("read tcp 127.0.0.1:%s->127.0.0.1:6379: %w", port, syscall.ECONNRESET)
	}
	for _, err := range []error{reset("50000"), reset("50001"), proto("WRONGPASS invalid password"), reset("50002"), proto("WRONGPASS again")} {
		n.shards.set("127.0.0.1:6379", err)
	}
	require.Equal(t, 2, strings.Count(n.logs.String(), "store does not answer"), n.logs.String())
	require.Contains(t, n.operate("GET", "/readyz").body, "WRONGPASS again", "the latest")
	n.shards.set("127.0.0.1:6379", nil)
	n.shards.set("127.0.0.1:6379", reset("50003"))
	require.Equal(t, 3, strings.Count(n.logs.String(), "store does not answer"), "another outage")
	n.shards.set("127.0.0.1:6379", nil)
}

// proto is an error that Redis sent while a connection was made.
type proto string

func (p proto) Error() string { return string(p) }
func (p proto) RedisError()   {}

// A store that answers decisions with errors is down everywhere, and is logged once.
func TestStoreThatRefusesToDecide(t *testing.T) {
	redis := testenv.Redis(t, testenv.Options{})
	n := start(t, setup{redis: redis, rules: ruleA})
	require.NoError(t, redis.Client().ConfigSet(context.Background(), "maxmemory", "1").Err())
	for range 5 {
		n.get("/")
	}
	require.Equal(t, 1, strings.Count(n.logs.String(), "store refuses to decide"), n.logs.String())
	require.Contains(t, n.logs.String(), "OOM")
	eventually(t, "the node notices", func() bool { return n.metric("weir_store_up") == 0 })
	require.Contains(t, n.operate("GET", "/readyz").body, "OOM")
	require.NoError(t, redis.Client().ConfigSet(context.Background(), "maxmemory", "0").Err())
	eventually(t, "the node notices", func() bool { return n.metric("weir_store_up") == 1 })
	require.NotContains(t, n.operate("GET", "/readyz").body, "OOM")
	require.Equal(t, 1, strings.Count(n.logs.String(), "store refuses to decide"), n.logs.String())
}

// A read-only store is down even without requests.
func TestIdleNodeNoticesAReadOnlyStore(t *testing.T) {
	redis := testenv.Redis(t, testenv.Options{})
	n := start(t, setup{redis: redis, rules: ruleA})
	require.NoError(t, redis.Client().ReplicaOf(context.Background(), "127.0.0.1", "1").Err())
	eventually(t, "the node notices", func() bool { return n.metric("weir_store_up") == 0 })
	require.Contains(t, n.operate("GET", "/readyz").body, "READONLY")
}

// A store that may evict is reported at startup, and its evictions are counted.
func TestStoreThatEvicts(t *testing.T) {
	f := func(name string, may float64, args ...string) {
		t.Run(name, func(t *testing.T) {
			n := start(t, setup{redis: testenv.Redis(t, testenv.Options{Args: args}), rules: ruleA})
			if may == 1 {
				eventually(t, "the node notices", func() bool { return n.metric("weir_store_may_evict") == 1 })
				require.Equal(t, 1, strings.Count(n.logs.String(), "store evicts counters"), n.logs.String())
				require.Contains(t, n.logs.String(), "volatile-ttl")
				return
			}
			n.shards.evicts("a", &redisstore.Eviction{Policy: "noeviction", Evicted: 3})
			n.shards.evicts("b", &redisstore.Eviction{Policy: "noeviction", Evicted: 4})
			require.EqualValues(t, 7, n.metric("weir_store_evicted_keys"))
			require.Equal(t, 2, strings.Count(n.logs.String(), "store evicts counters"), "a store that has evicted is reported too")
			n.shards.evicts("a", nil)
			require.EqualValues(t, 4, n.metric("weir_store_evicted_keys"))
			require.Zero(t, n.metric("weir_store_may_evict"))
		})
	}
	f("bounded, with volatile-ttl", 1, "maxmemory 100mb", "maxmemory-policy volatile-ttl")
	f("bounded, with noeviction", 0, "maxmemory 100mb", "maxmemory-policy noeviction")
	f("unbounded", 0, "maxmemory-policy volatile-ttl")
}
