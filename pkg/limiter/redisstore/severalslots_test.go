package redisstore_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/testenv"
	"github.com/weir-edge/weir/pkg/limiter"
	"github.com/weir-edge/weir/pkg/limiter/redisstore"
)

// subjectsOf returns subjects in different slots of one master of a cluster.
func subjectsOf(c *testenv.RedisCluster, master *testenv.Server, n int) (subjects []string) {
	for i := 0; len(subjects) < n; i++ {
		if s := fmt.Sprint("s", i); c.MasterOf("{"+s+"}") == master {
			subjects = append(subjects, s)
		}
	}
	return subjects
}

// A script for several slots answers as one for each slot does.
func TestAcrossAnswersAsAlone(t *testing.T) {
	cluster := testenv.Cluster(t, testenv.Options{})
	master := cluster.MasterOf("{a}")
	client := master.Client()
	subjects := subjectsOf(cluster, master, 5)
	run := func(calls []*limiter.Call) (answers []int64, scripts int) {
		commands, sources := redisstore.ClusterCommands(stopped, calls)
		for i, command := range commands {
			require.NoError(t, client.ScriptLoad(t.Context(), sources[i]).Err())
			got, err := client.Do(t.Context(), command...).Int64Slice()
			require.NoError(t, err)
			answers = append(answers, got[1:]...)
		}
		return answers, len(commands)
	}
	decides := func(together bool, kind func(subject string) *limiter.Call) (answers []int64) {
		require.NoError(t, client.FlushAll(t.Context()).Err())
		require.NoError(t, client.LPush(t.Context(), string(kind(subjects[3]).Checks[0].Key), "not ours").Err())
		for range 3 {
			var calls []*limiter.Call
			for _, s := range subjects {
				calls = append(calls, kind(s))
			}
			if together {
				got, scripts := run(calls)
				require.Equal(t, 1, scripts)
				answers = append(answers, got...)
				continue
			}
			for _, c := range calls {
				got, _ := run([]*limiter.Call{c})
				answers = append(answers, got...)
			}
		}
		return answers
	}
	mixed := rule(t, "mixed fixed_window limit=4 window=1h")
	for name, l := range every(t) {
		take := func(s string) *limiter.Call {
			return &limiter.Call{Times: 2, Checks: []limiter.Check{check(l, s, 1), check(mixed, s, 1)}}
		}
		require.Equal(t, decides(false, take), decides(true, take), name)
	}
	leased := rule(t, "leased fixed_window limit=100 window=1m")
	leased.Leased = true
	grant := func(s string) *limiter.Call {
		c := check(leased, s, 10)
		c.Nodes = 2
		return &limiter.Call{Times: 1, Checks: []limiter.Check{c}}
	}
	require.Equal(t, decides(false, grant), decides(true, grant))
}

// While slots move between masters, each request is charged once, by the master that has its keys.
func TestAcrossWhileSlotsMove(t *testing.T) {
	cluster := testenv.Cluster(t, testenv.Options{})
	s := open(t, redisstore.Config{Mode: redisstore.Cluster, Addrs: cluster.Addrs(), Timeout: patience})
	awaitTopology(t, s)
	from := cluster.MasterOf("{a}")
	to := cluster.Nodes[0]
	if to == from {
		to = cluster.Nodes[1]
	}
	const limit, callers = 50, 4
	one := rule(t, fmt.Sprintf("one fixed_window limit=%d window=%s", limit, testenv.LongWindow()))
	two := rule(t, fmt.Sprintf("two rolling_window limit=%d window=24h", 2*limit))
	subjects := subjectsOf(cluster, from, 40)

	var asking sync.WaitGroup
	allowed := make([]atomic.Int64, len(subjects))
	half := make(chan struct{}) // closed when half of the requests have passed
	var passed atomic.Int64
	for i, subject := range subjects {
		for range callers {
			asking.Go(func() {
				checks := []limiter.Check{check(one, subject, 1), check(two, subject, 1)}
				var d limiter.Decision
				for range limit {
					if err := s.Take(context.Background(), checks, &d); err != nil {
						t.Errorf("%s: %v", subject, err)
						return
					}
					if d.Allowed {
						allowed[i].Add(1)
						if passed.Add(1) == limit*int64(len(subjects))/2 {
							close(half)
						}
					}
				}
			})
		}
	}
	for i, subject := range subjects[:20] {
		if i == 10 {
			<-half
		}
		cluster.OpenSlot("{"+subject+"}", to)
		cluster.CloseSlot("{"+subject+"}", to)
	}
	asking.Wait()
	for i, subject := range subjects {
		require.EqualValues(t, limit, allowed[i].Load(), subject)
		require.EqualValues(t, limit, ask(t, s, peek(check(two, subject, 1))).Results[0].Remaining, "%s is charged once a request", subject)
	}
}

// A server that refuses the scripts for several slots gets one for each slot.
func TestAcrossRefused(t *testing.T) {
	cluster := testenv.Cluster(t, testenv.Options{})
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs()})
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	master := cluster.MasterOf("{a}")
	l := rule(t, "r fixed_window limit=100 window="+testenv.LongWindow())
	for i, change := range []func(source string) string{
		func(string) string { return "this does not compile" }, // as a first line of #! before Redis 7.0
		func(string) string { return "#!lua flags=other\nreturn 1" },
		// Without the flag, Redis refuses the keys of all slots but the first at run time. So do
		// managed services that do not honor it.
		func(source string) string { return strings.Replace(source, " flags=allow-cross-slot-keys", "", 1) },
	} {
		var calls []*limiter.Call
		for _, subject := range subjectsOf(cluster, master, 20) {
			calls = append(calls, &limiter.Call{Times: 1, Checks: []limiter.Check{check(l, subject, 1)}})
		}
		require.True(t, redisstore.DoWithAcross(t.Context(), client, master.Client(), change, calls), "%d: %v", i, calls[0].Err)
		for _, c := range calls {
			require.NoError(t, c.Err)
			require.EqualValues(t, l.Limit-int64(i)-1, c.Answers[0].Remaining, "%d: charged once", i)
		}
	}
}

// The keys of a script for several slots that other masters have go there.
func TestAcrossForAWrongMaster(t *testing.T) {
	cluster := testenv.Cluster(t, testenv.Options{})
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs()})
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	l := rule(t, "r fixed_window limit=100 window="+testenv.LongWindow())
	var calls []*limiter.Call
	for i := range 60 {
		calls = append(calls, &limiter.Call{Times: 1, Checks: []limiter.Check{check(l, fmt.Sprint("s", i), 1)}})
	}
	for i, c := range cluster.Nodes { // masters and replicas
		for _, call := range calls {
			call.Answers = call.Answers[:0]
		}
		redisstore.Do(t.Context(), client, c.Client(), calls)
		for _, call := range calls {
			require.NoError(t, call.Err)
			require.EqualValues(t, l.Limit-int64(i)-1, call.Answers[0].Remaining, "charged once, on its master")
		}
	}
}
