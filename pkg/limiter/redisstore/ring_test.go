package redisstore_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/testenv"
	"github.com/weir-edge/weir/pkg/limiter"
	"github.com/weir-edge/weir/pkg/limiter/memory"
	"github.com/weir-edge/weir/pkg/limiter/redisstore"
	"github.com/weir-edge/weir/pkg/limiter/storetest"
)

// A ring wraps many times, grows and shrinks, and decides like the memory store.
func TestRingGoesRound(t *testing.T) {
	r := newRings(t, 1)
	large := rule(t, "r rolling_window limit=600 window=10s")
	small := rule(t, "r rolling_window limit=200 window=10s count_denied")
	for i := range 6000 {
		l := large
		if i%7 == 0 {
			l = small
		}
		r.now += r.random.Int63n(60_000)
		if i%500 == 0 {
			r.now += 9_000_000 // most leave the window at once
		}
		cost := 1 + r.random.Int63n(9)
		if i%400 == 1 {
			cost = 300
		}
		r.decides(l, cost, 20)
	}
	require.Greater(t, r.rings, 1000)
	require.Greater(t, r.logs, 100)
}

// Where a log becomes a ring and a ring becomes a log, under limits of both that change at any
// time, and while the clock is set back, each decision is that of the memory store.
func TestRingChangesForm(t *testing.T) {
	rings, logs, changes := 0, 0, 0
	for seed := range int64(6) {
		r := newRings(t, seed)
		l := rule(t, "r rolling_window limit=129 window=10s")
		for i := range 1500 {
			if i%50 == 0 || r.random.Intn(20) == 0 {
				line := fmt.Sprintf("r rolling_window limit=%d window=10s", []int{1, 127, 128, 129, 130, 257, 2000}[r.random.Intn(7)])
				if r.random.Intn(3) == 0 {
					line += " count_denied"
				}
				l = rule(t, line)
			}
			switch r.random.Intn(40) {
			case 0:
				r.now += r.random.Int63n(20_000_000)
			case 1:
				r.now -= r.random.Int63n(5_000_000)
			case 2: // set back
				r.now -= 10_000_000 + r.random.Int63n(10_000_000)
			default:
				r.now += r.random.Int63n(100_000)
			}
			cost := 1 + r.random.Int63n(3)
			switch r.random.Intn(30) {
			case 0: // about as many as a log has at most
				cost = limiter.WholeLog - 2 + r.random.Int63n(5)
			case 1:
				cost = l.Limit
			}
			r.decides(l, min(cost, l.Limit), 5)
		}
		rings, logs, changes = rings+r.rings, logs+r.logs, changes+r.changes
	}
	t.Logf("%d decisions left a ring, %d a log; %d times the form changed", rings, logs, changes)
	require.Greater(t, rings, 500)
	require.Greater(t, logs, 500)
	require.Greater(t, changes, 100)

	r := newRings(t, 0)
	l := rule(t, "r rolling_window limit=300 window=10s")
	for _, step := range []struct{ later, cost int64 }{{0, 129}, {5, 100}, {6, 100}, {20, 300}} { // it wraps, all leave, and it grows
		r.now += step.later * 1e6
		r.decides(l, step.cost, 1e9)
	}
	for cost := range l.Limit {
		r.decides(l, 1+cost, 1e9)
	}
}

// rings asks Redis and the memory store for the same decisions.
type rings struct {
	*testing.T
	random               *rand.Rand
	now                  int64
	server               *testenv.Server
	store                *redisstore.Store
	plain                *memory.Store
	ring                 bool // the form after the last decision
	rings, logs, changes int
}

func newRings(t *testing.T, seed int64) *rings {
	r := &rings{T: t, random: rand.New(rand.NewSource(seed)), now: storetest.Epoch, server: testenv.Redis(t, testenv.Options{})}
	clock := func() int64 { return r.now }
	r.store = open(t, redisstore.Config{Mode: redisstore.Single, Addrs: []string{r.server.Addr}, Timeout: patience, Clock: clock})
	r.plain = memory.New(memory.Config{Clock: clock, Source: limiter.SourceRedis})
	return r
}

// decides asks both, and returns what passed once in so many times, soon after.
func (r *rings) decides(l *limiter.Limit, cost int64, returns int) {
	c := check(l, "a", cost)
	want, got := ask(r.T, r.plain, c), ask(r.T, r.store, c)
	require.Equal(r, want, got, "limit %d, cost %d", l.Limit, cost)
	if want.Allowed && r.random.Intn(returns) == 0 {
		for range r.random.Intn(3) { // others come after it
			other := check(l, "a", 1)
			r.now += r.random.Int63n(2000)
			require.Equal(r, ask(r.T, r.plain, other), ask(r.T, r.store, other))
		}
		r.now += r.random.Int63n(20_000)
		require.NoError(r, r.plain.Return(context.Background(), []limiter.Check{c}, want))
		require.NoError(r, r.store.Return(context.Background(), []limiter.Check{c}, got))
	}
	head := r.server.Client().GetRange(r.Context(), string(storetest.Key("a", l)), 0, 23).Val()
	ring := len(head) == 24 && head[0]^head[4] == 0x80 && head[1:4] == head[5:8]
	if ring {
		size, room := binary.BigEndian.Uint32([]byte(head[12:])), binary.BigEndian.Uint32([]byte(head[16:]))
		require.Greater(r, size, uint32(limiter.WholeLog))
		require.LessOrEqual(r, room, 4*size)
	}
	if ring != r.ring {
		r.ring = ring
		r.changes++
	}
	if ring {
		r.rings++
	} else {
		r.logs++
	}
}

// A ring's cost in Redis does not grow with its limit: an accepted request neither reads nor
// writes all of it.
func TestRingTouchesLittle(t *testing.T) {
	server := testenv.Redis(t, testenv.Options{})
	s := open(t, redisstore.Config{Mode: redisstore.Single, Addrs: []string{server.Addr}, Timeout: patience})
	l := rule(t, "r rolling_window limit=10000 window=1h count_denied")
	ask(t, s, check(l, "a", 10_000))
	ask(t, s, check(l, "a", 1)) // the ring is written as such
	before := commands(t, server)
	for range 100 {
		ask(t, s, check(l, "a", 1))
	}
	after := commands(t, server)
	require.Equal(t, before["set"], after["set"], "no decision writes the whole ring")
	require.Equal(t, before["get"], after["get"], "or reads it")
	require.LessOrEqual(t, after["setrange"]-before["setrange"], 300)
	require.LessOrEqual(t, after["getrange"]-before["getrange"], 400)
	require.LessOrEqual(t, server.Client().PTTL(t.Context(), string(storetest.Key("a", l))).Val(), time.Hour+time.Second)
}

// commands returns how often each command ran.
func commands(t *testing.T, server *testenv.Server) map[string]int {
	t.Helper()
	info, err := server.Client().InfoMap(t.Context(), "commandstats").Result()
	require.NoError(t, err)
	counts := map[string]int{}
	for name, stats := range info["Commandstats"] {
		calls, _, _ := strings.Cut(strings.TrimPrefix(stats, "calls="), ",")
		counts[strings.TrimPrefix(name, "cmdstat_")], err = strconv.Atoi(calls)
		require.NoError(t, err)
	}
	return counts
}
