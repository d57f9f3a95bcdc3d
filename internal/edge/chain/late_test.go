package chain

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/testenv"
	"github.com/weir-edge/weir/pkg/limiter"
	"github.com/weir-edge/weir/pkg/limiter/redisstore"
	"github.com/weir-edge/weir/pkg/limiter/storetest"
)

// What a Redis that pauses charges for requests that are answered 503 is given back.
func TestPausesChargeNoRefusedRequest(t *testing.T) {
	const budget, rounds, callers = 400 * time.Millisecond, 4, 16 // answers may be a second late
	check := func(name, subject string, policy limiter.OnFailure) limiter.Check {
		l, err := storetest.ParseLimit(strings.Fields(name + " fixed_window limit=1000 window=" + testenv.LongWindow()))
		require.NoError(t, err)
		l.OnFailure = policy
		return limiter.Check{Limit: l, Key: storetest.Key(subject, l), Cost: 1}
	}
	run := func(t *testing.T, c redisstore.Config, pauses *testenv.Server, counted limiter.Check, others ...limiter.Check) {
		c.Timeout = budget
		var failed atomic.Int64
		chain, err := Build(Config{Redis: &c, Nodes: one, DeniedMemory: 1000, Failed: func(error) { failed.Add(1) }})
		require.NoError(t, err)
		defer chain.Close()
		ask := func(checks ...limiter.Check) (d limiter.Decision) {
			require.NoError(t, chain.Take.TakeAfter(context.Background(), checks, &d, limiter.PrecheckResult{CheckedAt: time.Now()}))
			return d
		}
		looks := counted
		looks.Peek = true
		left := func() (d limiter.Decision) {
			require.Eventually(t, func() bool { d = ask(looks); return d.Results[0].Source == limiter.SourceRedis }, testenv.Patience, time.Millisecond)
			return d
		}
		left()
		var passed, missed atomic.Int64
		lost := int64(0) // of rounds whose answers may have come later than they may
		for range rounds {
			pauses.Suspend()
			began := time.Now()
			var all sync.WaitGroup
			for range callers {
				all.Go(func() {
					if d := ask(append([]limiter.Check{counted}, others...)...); d.Allowed {
						passed.Add(1)
					} else if d.StoreUnavailable {
						missed.Add(1)
					}
				})
			}
			all.Wait()
			pauses.Resume() // what was sent is charged now
			left()
			if time.Since(began) > budget+800*time.Millisecond {
				lost += callers
			}
			// The next pause would keep what is given back from a new connection.
			require.Eventually(t, func() bool { return left().Results[0].Remaining >= 1000-passed.Load()-lost }, testenv.Patience, 10*time.Millisecond,
				"%d passed, %d errors, and of 1000 remain %d", passed.Load(), failed.Load(), left().Results[0].Remaining)
		}
		require.Positive(t, missed.Load())
	}
	t.Run("one server", func(t *testing.T) {
		s := testenv.Redis(t, testenv.Options{})
		run(t, redisstore.Config{Mode: redisstore.Single, Addrs: []string{s.Addr}}, s, check("r", "a", limiter.Closed))
	})
	t.Run("beside a hung master", func(t *testing.T) {
		cluster := testenv.Cluster(t, testenv.Options{})
		on := func(master *testenv.Server) string {
			for i := 0; ; i++ {
				if name := fmt.Sprint("s", i); cluster.MasterOf("{"+name+"}") == master {
					return name
				}
			}
		}
		hung, pauses := cluster.Nodes[0], cluster.Nodes[1]
		closed, counted := check("closed", on(hung), limiter.Closed), check("counted", on(pauses), limiter.Local)
		hung.Suspend()
		defer hung.Resume()
		run(t, redisstore.Config{Mode: redisstore.Cluster, Addrs: cluster.Addrs()[1:]}, pauses, counted, closed)
	})
}
