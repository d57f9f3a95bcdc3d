package chain

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/weir-edge/weir/internal/testenv"
	"github.com/weir-edge/weir/pkg/limiter"
	"github.com/weir-edge/weir/pkg/limiter/redisstore"
)

func TestMain(m *testing.M) {
	// A closed go-redis pool whose server is unreachable checks once per second whether it was closed.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial"))
}

func one() int { return 1 }

// ARCHITECTURE's table has the layers in their order, and each adds what it is named after.
func TestLayersAreThoseOfTheTable(t *testing.T) {
	page, err := os.ReadFile("../../../docs/ARCHITECTURE.md")
	require.NoError(t, err)
	_, section, _ := strings.Cut(string(page), "\n## The layers\n")
	section, _, _ = strings.Cut(section, "\n##")
	var documented, built []string
	for _, row := range regexp.MustCompile(`(?m)^\| ([^|]*?) \|`).FindAllStringSubmatch(section, -1) {
		documented = append(documented, row[1])
	}
	for _, l := range allLayers {
		built = append(built, l.name)
	}
	inRedisstore := []string{"Breaker, per shard", "Combine, per shard", "redisstore node"}
	require.Equal(t, slices.Concat([]string{"layer"}, built, inRedisstore), documented)

	shared, err := redisstore.Open(redisstore.Config{Mode: redisstore.Cluster, Addrs: []string{"127.0.0.1:1"}})
	require.NoError(t, err)
	b := &builder{Config: Config{Redis: &redisstore.Config{}, Nodes: one, Node: "a"}}
	b.Shared, b.next = shared, shared
	for _, l := range slices.Backward(allLayers) {
		require.True(t, l.needed(b))
		l.put(b)
		outermost := fmt.Sprintf("%T", b.next)
		if b.front != nil {
			outermost = fmt.Sprintf("%T", b.front)
		}
		require.Contains(t, strings.TrimSuffix(outermost, ".Store")+" ", l.name+" ")
	}
	b.Close()
}

// Whatever layers a chain has, its steps decide alike: a refusal that Redis gave once is known,
// a peek charges nothing, and a reset forgets.
func TestSteps(t *testing.T) {
	redis := testenv.Redis(t, testenv.Options{})
	for name, config := range map[string]Config{
		"memory":             {},
		"memory and regions": {Node: "a"},
		"redis":              {Redis: &redisstore.Config{Mode: redisstore.Single, Addrs: []string{redis.Addr}}},
		"redis and regions":  {Redis: &redisstore.Config{Mode: redisstore.Single, Addrs: []string{redis.Addr}}, Node: "a"},
	} {
		t.Run(name, func(t *testing.T) {
			if config.Nodes, config.DeniedMemory = one, 1000; config.Redis != nil {
				config.Redis.Timeout = testenv.Patience
			}
			c, err := Build(config)
			require.NoError(t, err)
			defer c.Close()
			ctx := context.Background()
			l := &limiter.Limit{Rule: "r", Algorithm: limiter.TokenBucket, Limit: 1, Burst: 1, Window: limiter.MaxWindow, Global: &limiter.Global{}}
			checks := []limiter.Check{{Limit: l, Key: []byte("weir:{" + name + "}:r:tb"), Cost: 1}}
			var d limiter.Decision
			take := func() bool {
				look := c.Precheck.Precheck(checks, &d, time.Now())
				if !look.Refused {
					require.NoError(t, c.Take.TakeAfter(ctx, checks, &d, look))
				}
				return d.Allowed
			}
			for range 2 {
				peeked := slices.Clone(checks)
				require.NoError(t, c.Peek.Peek(ctx, peeked, &d))
				require.True(t, d.Allowed)
			}
			require.True(t, take())
			require.False(t, take())
			require.False(t, take())
			require.Equal(t, config.Redis != nil, d.Results[0].Source == limiter.SourceDenied)
			require.NoError(t, c.Peek.Peek(ctx, slices.Clone(checks), &d))
			require.Equal(t, config.Redis != nil, d.Results[0].Source == limiter.SourceDenied)
			require.LessOrEqual(t, d.Results[0].RetryAfter, l.Window, "from now on")
			require.NoError(t, c.Reset.Reset(ctx, checks))
			require.True(t, take())
			require.NoError(t, c.Return.Return(ctx, checks, &d))
			require.True(t, take())
			if c.Tallies != nil {
				totals, _ := c.Tallies.Flush(ctx)
				require.Len(t, totals, 1)
				require.EqualValues(t, 2, totals[0].Count, "what passed and was not returned, once each")
			}
		})
	}
}
