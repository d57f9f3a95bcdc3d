package limiter_test

import (
	"fmt"
	"math/rand"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/pkg/limiter"
)

// What a batch, the command and start of a script, and a decision in it cost Redis: the
// last two from TABLES.md, where a lone decision takes 7.5 µs and one of 64 takes 3.6.
const (
	batchCost  = 6 * time.Microsecond
	scriptCost = 5900 * time.Nanosecond
	shareCost  = 3600 * time.Nanosecond
)

// partitioned returns a distant master of a Cluster, where the calls of each partition share a
// script, and counts the scripts; 0 partitions means that each subject is one.
func partitioned(trip time.Duration, partitions int, scripts *int) *distant {
	random := rand.New(rand.NewSource(1))
	return &distant{trip: trip, cost: func(calls int) time.Duration {
		begun := calls
		if partitions > 0 {
			seen := map[int]bool{}
			for range calls {
				seen[random.Intn(partitions)] = true
			}
			begun = len(seen)
		}
		*scripts += begun
		return batchCost + time.Duration(begun)*scriptCost + time.Duration(calls)*shareCost
	}}
}

// 20 nodes of 20,000 strict decisions a second each, for subjects of their own, on seven
// masters: batches are so small that sharing scripts by partitions of the key space would
// save next to nothing. Hence each subject is a hash tag. The times are virtual; -v prints
// the table.
func TestPartitionsWouldNotPay(t *testing.T) {
	const nodes, masters, perNode, requests = 20, 7, 20_000, 500
	table := []string{fmt.Sprintf("%-12s %-12s %16s %20s %22s", "round trip", "partitions", "calls in a batch", "scripts a decision", "µs of Redis a decision")}
	l := rule(t, "r fixed_window limit=1000000 window=1h")
	for _, trip := range []time.Duration{200 * time.Microsecond, time.Millisecond} {
		var alone float64
		for _, partitions := range []int{0, 1024, 256, 64} {
			synctest.Test(t, func(t *testing.T) {
				scripts := 0
				p := partitioned(trip, partitions/masters, &scripts)
				var all sync.WaitGroup
				for node := range nodes {
					c := limiter.NewCombine(p, time.Minute, limiter.MaxFlights, nil)
					defer c.Close()
					random := rand.New(rand.NewSource(int64(node)))
					all.Go(func() {
						var mine sync.WaitGroup
						defer mine.Wait()
						for i := range requests {
							time.Sleep(time.Duration(random.ExpFloat64() * float64(time.Second) * masters / perNode))
							mine.Go(func() { require.True(t, ask(t, c, check(l, fmt.Sprint(node, "-", i), 1)).Allowed) })
						}
					})
				}
				all.Wait()
				us := float64(p.work.Nanoseconds()) / 1e3 / (nodes * requests)
				name := fmt.Sprint(partitions)
				if partitions == 0 {
					name, alone = "a subject", us
				}
				table = append(table, fmt.Sprintf("%-12v %-12s %16.1f %20.2f %22.1f", trip, name,
					float64(p.calls)/float64(p.batches), float64(scripts)/(nodes*requests), us))
				require.Greater(t, us, alone*0.93, "%d partitions at %v", partitions, trip)
			})
		}
	}
	t.Log("\n" + strings.Join(table, "\n"))
}
