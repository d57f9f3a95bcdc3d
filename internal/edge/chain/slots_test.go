package chain

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
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

// kinds are rules of all kinds, for the requests of a client and how many of them may pass.
var kinds = map[string]int64{"strict": 40, "two rules": 40, "a new key each": 40, "two slots": 40, "leased": 40, "reported": 0, "reported bucket": 0, "concurrency": 0}

// mover is a client whose slot may move.
type mover struct {
	kind          string
	checks        []limiter.Check
	asked, passed atomic.Int64
}

func newMover(t *testing.T, kind, subject, elsewhere string) *mover {
	m := &mover{kind: kind}
	add := func(subject, line string) *limiter.Limit {
		l, err := storetest.ParseLimit(strings.Fields(fmt.Sprintf("r%d %s", len(m.checks), line)))
		require.NoError(t, err)
		l.OnFailure = limiter.Closed
		key := fmt.Appendf(storetest.Key(subject, l), ":%s", kind)
		m.checks = append(m.checks, limiter.Check{Limit: l, Key: key, Cost: 1})
		return l
	}
	narrow, wide := "fixed_window limit=40 window="+testenv.LongWindow(), "rolling_window limit=100 window=24h"
	switch kind {
	case "strict":
		add(subject, narrow)
	case "two rules", "a new key each":
		add(subject, wide)
		add(subject, narrow)
	case "two slots":
		add(elsewhere, wide)
		add(subject, narrow)
	case "leased":
		add(subject, narrow).Leased = true
	case "reported":
		add(subject, "fixed_window limit=1000000 window=1h").Reported = true
	case "reported bucket":
		add(subject, "token_bucket limit=1000000 burst=1000000 window=1h").Reported = true
	case "concurrency":
		add(subject, "concurrency limit=40 window=1m")
	}
	return m
}

// request asks once, and reports whether Redis decided.
func (m *mover) request(c *Chain) bool {
	var d limiter.Decision
	n := m.asked.Add(1)
	checks := slices.Clone(m.checks)
	for i := range checks {
		checks[i].Slot = uint64(n)
	}
	if m.kind == "a new key each" {
		checks[0].Key = fmt.Appendf(slices.Clone(checks[0].Key), ":%d", n)
	}
	ctx := context.Background()
	if look := c.Precheck.Precheck(checks, &d, time.Now()); !look.Refused {
		_ = c.Take.TakeAfter(ctx, checks, &d, look)
	}
	if d.Allowed {
		m.passed.Add(1)
		if m.kind == "concurrency" {
			_ = c.Return.Return(ctx, checks, &d)
		}
	}
	return !slices.ContainsFunc(d.Results, func(r limiter.Result) bool { return r.Failed || r.Source == limiter.SourceFallback })
}

// Redis decides every request while a slot is open, with some of its keys at each of two
// masters, and while slots move: those whose keys move, and those of other keys of these masters.
// WEIR_SOAK=1 moves more slots, leaves one open for longer, and keeps the default budget, which
// only decisions while the machine stands still may miss.
func TestSlotsMove(t *testing.T) {
	cluster := testenv.Cluster(t, testenv.Options{})
	from, to := cluster.Nodes[0], cluster.Nodes[1]
	slots, open, budget := 150, int64(2000), testenv.Patience
	var machine *stalls
	if os.Getenv("WEIR_SOAK") != "" {
		slots, open, budget = 1500, 300_000, redisstore.DefaultTimeout
		machine = watchStalls(t)
	}
	var mu sync.Mutex
	var missed, aside []miss
	c, err := Build(Config{
		Redis: &redisstore.Config{Mode: redisstore.Cluster, Addrs: cluster.Addrs(), Timeout: budget}, Nodes: one, DeniedMemory: 10_000,
		Failed: func(err error) { mu.Lock(); defer mu.Unlock(); missed = append(missed, miss{time.Now(), err}) },
	})
	require.NoError(t, err)
	defer c.Close()
	require.NoError(t, c.Shared.Await(t.Context()))

	tried := 0
	subject := func(is func(slot int64) bool) string {
		for ; ; tried++ {
			name := fmt.Sprint("s", tried)
			slot, err := from.Client().ClusterKeySlot(t.Context(), name).Result()
			require.NoError(t, err)
			if is(slot) && cluster.MasterOf("{"+name+"}") == from {
				tried++
				return name
			}
		}
	}
	stays := func(slot int64) bool { return slot >= int64(slots) }
	opened := subject(stays)
	key := "{" + opened + "}"
	var movers []*mover
	for kind := range kinds {
		moves := subject(func(slot int64) bool { return slot < int64(slots) })
		movers = append(movers, newMover(t, kind, opened, "e"+opened), newMover(t, kind, moves, "e"+moves), newMover(t, kind, subject(stays), "e"+moves))
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var load sync.WaitGroup
	var answered atomic.Int64
	for _, m := range movers {
		load.Go(func() {
			tick := time.NewTicker(10 * time.Millisecond)
			defer tick.Stop()
			for ctx.Err() == nil {
				<-tick.C
				if !m.request(c) {
					mu.Lock()
					aside = append(aside, miss{time.Now(), errors.New(m.kind + ": decided without Redis")})
					mu.Unlock()
				}
				answered.Add(1)
			}
		})
	}
	answers := func(n int64) {
		from := answered.Load()
		require.Eventually(t, func() bool { return answered.Load() >= from+n }, time.Hour, 10*time.Millisecond)
	}
	answers(200)
	cluster.OpenSlot(key, to)
	for range 3 {
		answers(200)
		cluster.MoveKeys(key, to, 3)
	}
	answers(open)
	cluster.CloseSlot(key, to)
	cluster.WaitHealthy() // redis-cli gives up if the nodes disagree
	cluster.Reshard(from, to, slots)
	for _, m := range movers { // one may have waited while others asked
		require.Eventually(t, func() bool { return m.asked.Load() > kinds[m.kind] }, testenv.Patience, 10*time.Millisecond, m.kind)
	}
	cancel()
	load.Wait()

	mu.Lock()
	t.Logf("%d decisions, %d of them without Redis; %d calls failed", answered.Load(), len(aside), len(missed))
	all := slices.Concat(missed, aside)
	mu.Unlock()
	require.Empty(t, machine.unexplained(all, budget))
	var d limiter.Decision
	for _, m := range movers {
		limit := kinds[m.kind]
		if limit == 0 {
			continue
		}
		passed := m.passed.Load()
		require.LessOrEqual(t, passed, limit, m.kind)
		if m.kind == "leased" {
			continue
		}
		require.Equal(t, limit, passed, m.kind)
		narrow := m.checks[len(m.checks)-1]
		narrow.Peek = true
		require.Eventually(t, func() bool { // returns may still be on their way
			return c.Shared.Take(t.Context(), []limiter.Check{narrow}, &d) == nil && d.Results[0].Remaining == 0
		}, testenv.Patience, 10*time.Millisecond, "%s: %v", m.kind, &d)
	}
}
