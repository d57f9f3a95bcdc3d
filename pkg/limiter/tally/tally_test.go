package tally

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/pkg/limiter"
	"github.com/weir-edge/weir/pkg/limiter/memory"
	"github.com/weir-edge/weir/pkg/limiter/storetest"
)

const width = int64(10 * time.Second / time.Microsecond)

// bench is a region's store and its nodes, at a time that the test sets.
type bench struct {
	*testing.T
	limit *limiter.Limit
	now   int64
	store *memory.Store
	err   error // of the store's counters
}

func newBench(t *testing.T) *bench {
	b := &bench{T: t, now: storetest.Epoch - storetest.Epoch%width}
	b.limit = &limiter.Limit{Rule: "r", Algorithm: limiter.FixedWindow, Limit: 100, Window: 10 * time.Second, Global: &limiter.Global{PartitionAfter: time.Second}}
	require.Empty(t, b.limit.Validate())
	b.lose()
	return b
}

// lose empties the store.
func (b *bench) lose() { b.store = memory.New(memory.Config{Clock: func() int64 { return b.now }}) }

func (b *bench) Tally(ctx context.Context, node string, list []limiter.Tally) {
	if b.err == nil {
		b.store.Tally(ctx, node, list)
		return
	}
	for i := range list {
		list[i].Err = b.err
	}
}

func (b *bench) Merge(ctx context.Context, list []limiter.Merge) { b.store.Merge(ctx, list) }

func (b *bench) Take(ctx context.Context, c []limiter.Check, d *limiter.Decision) error {
	return b.store.Take(ctx, c, d)
}

func (b *bench) Return(ctx context.Context, c []limiter.Check, d *limiter.Decision) error {
	return b.store.Return(ctx, c, d)
}

func (b *bench) Reset(ctx context.Context, c []limiter.Check) error { return b.store.Reset(ctx, c) }

func (b *bench) node(name string) *Store {
	return New(Config{Next: limiter.NoDenied{FullStore: b}, Merger: b, Node: name})
}

func (b *bench) checks(key string, cost int64) []limiter.Check {
	return []limiter.Check{{Limit: b.limit, Key: storetest.Key(key, b.limit), Cost: cost}}
}

func (b *bench) take(s *Store, key string, cost int64) *limiter.Decision {
	b.Helper()
	var d limiter.Decision
	require.NoError(b, s.Take(b.Context(), b.checks(key, cost), &d))
	return &d
}

// flush returns the totals by subject and second of the window's start.
func (b *bench) flush(s *Store) (totals []Total, short string, lost int64) {
	totals, lost = s.Flush(b.Context())
	sums := map[string]int64{}
	for _, t := range totals {
		subject, _, _ := strings.Cut(t.Key[len("weir:{"):], "}")
		sums[fmt.Sprintf("%s@%d", subject, (t.Start-storetest.Epoch+storetest.Epoch%width)/1e6)] += t.Count
		require.Equal(b, width, t.Width)
		require.Same(b, b.limit, t.Limit)
	}
	return totals, fmt.Sprint(sums), lost
}

func (b *bench) requireFlush(s *Store, want string) []Total {
	b.Helper()
	totals, got, lost := b.flush(s)
	require.Equal(b, want, got)
	require.Zero(b, lost)
	return totals
}

// A total is reported until a peer confirms it, and again after it has grown.
func TestTotalsAreToldUntilConfirmed(t *testing.T) {
	b := newBench(t)
	one, other := b.node("1"), b.node("2")
	b.take(one, "a", 3)
	b.take(other, "a", 4)
	b.requireFlush(other, "map[a@0:4]")
	first := b.requireFlush(one, "map[a@0:7]")
	b.requireFlush(one, "map[a@0:7]")
	b.take(one, "a", 2)
	one.Confirm(first)
	grown := b.requireFlush(one, "map[a@0:9]")
	one.Confirm(first) // late
	b.requireFlush(one, "map[a@0:9]")
	one.Confirm(grown)
	b.requireFlush(one, "map[]")

	one.TellAgain(func(key string) bool { return key == string(storetest.Key("b", b.limit)) })
	b.requireFlush(one, "map[]")
	one.TellAgain(func(string) bool { return true })
	one.Confirm(b.requireFlush(one, "map[a@0:9]"))
	b.requireFlush(one, "map[]")
	require.Equal(t, 1, one.Keys())
}

// Only admitted units count, in the window in which they were taken; units returned before the
// report do not.
func TestWhatCounts(t *testing.T) {
	b := newBench(t)
	s := b.node("1")
	b.take(s, "a", 60)
	require.False(t, b.take(s, "a", 60).Allowed)
	var d limiter.Decision
	peek := b.checks("a", 1)
	peek[0].Peek = true
	require.NoError(t, s.Take(t.Context(), peek, &d))
	regional := &limiter.Limit{Rule: "r", Algorithm: limiter.FixedWindow, Limit: 100, Window: 10 * time.Second}
	require.NoError(t, s.Take(t.Context(), []limiter.Check{{Limit: regional, Key: storetest.Key("c", regional), Cost: 1}}, &d))
	b.requireFlush(s, "map[a@0:60]")

	require.NoError(t, s.Return(t.Context(), b.checks("a", 20), b.take(s, "a", 20)))
	b.requireFlush(s, "map[a@0:60]")
	told := b.take(s, "a", 10)
	b.requireFlush(s, "map[a@0:70]")
	require.NoError(t, s.Return(t.Context(), b.checks("a", 10), told)) // too late: others learned of it
	b.requireFlush(s, "map[a@0:70]")

	late := b.take(s, "a", 5)
	b.now += width
	b.take(s, "a", 1)
	require.NoError(t, s.Return(t.Context(), b.checks("a", 5), late))
	b.requireFlush(s, "map[a@0:70 a@10:1]")
	b.now += width
	b.take(s, "a", 2)
	s.count(&b.checks("a", 7)[0], b.now-2*width) // a lease that ends late
	b.requireFlush(s, "map[a@10:1 a@20:2]")
	require.EqualValues(t, 7, s.Uncounted())
}

// A store that failed gets everything after it recovers.
func TestAStoreThatFails(t *testing.T) {
	b := newBench(t)
	s := b.node("1")
	b.take(s, "a", 3)
	b.err = errors.New("unreachable")
	b.requireFlush(s, "map[]")
	b.take(s, "a", 3)
	b.requireFlush(s, "map[]")
	b.err = nil
	b.requireFlush(s, "map[a@0:6]")
}

// A node notices at its next count that the store lost its data, and reports everything again.
func TestAStoreThatLosesEverything(t *testing.T) {
	b := newBench(t)
	one, other := b.node("1"), b.node("2")
	for _, s := range []*Store{one, other} {
		b.take(s, "a", 10)
		b.take(s, "b", 20)
		b.requireFlush(s, map[*Store]string{one: "map[a@0:10 b@0:20]", other: "map[a@0:20 b@0:40]"}[s])
	}
	b.lose()
	b.take(one, "a", 1)
	_, _, lost := b.flush(one)
	require.Positive(t, lost)
	_, got, again := b.flush(one)
	require.Equal(t, lost, again)
	require.Equal(t, "map[a@0:11 b@0:20]", got)
	b.take(other, "b", 1)
	b.flush(other)
	_, got, _ = b.flush(other)
	require.Equal(t, "map[a@0:21 b@0:41]", got)

	b.lose()
	b.take(one, "b", 1)
	_, _, next := b.flush(one)
	require.Greater(t, next, lost)
}

// When the region has heard from no other for long enough, on_partition decides.
func TestAlone(t *testing.T) {
	for policy, want := range map[limiter.OnPartition][2]int64{limiter.PartitionShare: {34, 0}, limiter.PartitionOpen: {100, 0}, limiter.PartitionClosed: {0, 1}} {
		t.Run(policy.String(), func(t *testing.T) {
			b := newBench(t)
			b.limit.Global.OnPartition = policy
			s := b.node("1")
			s.SetAlone(time.Second, 3)
			require.EqualValues(t, 99, b.take(s, "whole", 1).Results[0].Remaining, "not yet")
			s.SetAlone(time.Second+1, 3)
			passed, unavailable := int64(0), int64(0)
			for range 200 {
				d := b.take(s, "a", 1)
				if d.Allowed {
					passed++
				} else if d.StoreUnavailable {
					unavailable = 1
					require.True(t, d.Results[0].Failed)
				}
			}
			require.Equal(t, want, [2]int64{passed, unavailable})
			if policy == limiter.PartitionShare {
				require.True(t, b.take(s, "large", 80).Allowed, "the whole limit at once")
				require.False(t, b.take(s, "large", 1).Allowed)
			}
			s.SetAlone(0, 3)
			require.Equal(t, passed < 100, b.take(s, "a", 1).Allowed, "what passed counts")
		})
	}
	b := newBench(t)
	b.limit.Global.OnPartition, b.limit.Shadow = limiter.PartitionClosed, true
	s := b.node("1")
	s.SetAlone(time.Minute, 3)
	require.True(t, b.take(s, "a", 1).Allowed, "a shadow rule refuses nothing")
}

// What is known to be refused of a share is refused without a call, and only what passes counts.
func TestKnownRefusalsOfAShare(t *testing.T) {
	b := newBench(t)
	s := New(Config{Next: limiter.NewDenied(b, 1000, 0), Merger: b, Node: "1"})
	look := func() bool { return s.Precheck(b.checks("a", 34), &limiter.Decision{}, time.Now()).Refused }
	s.SetAlone(time.Minute, 3)
	require.True(t, b.take(s, "a", 34).Allowed)
	require.False(t, look())
	require.False(t, b.take(s, "a", 34).Allowed)
	require.True(t, look())
	s.SetAlone(0, 3)
	require.False(t, look(), "the whole limit has room")
	require.True(t, b.take(s, "a", 34).Allowed)
	b.requireFlush(s, "map[a@0:68]")
}

// A node that counts its maximum of keys counts others after windows have ended, and reports
// the number that it did not count.
func TestMaxKeys(t *testing.T) {
	b := newBench(t)
	s := New(Config{Next: limiter.NoDenied{FullStore: b}, Merger: b, Node: "1", MaxKeys: shardCount})
	const keys = 1000
	for i := range keys {
		b.take(s, fmt.Sprint(i), 2)
	}
	require.LessOrEqual(t, s.Keys(), shardCount)
	require.EqualValues(t, 2*(keys-s.Keys()), s.Uncounted())
	totals, _, _ := b.flush(s)
	require.Len(t, totals, s.Keys())
	s.Confirm(totals)
	b.flush(s)

	before := s.Uncounted()
	b.now += width + limiter.CountersLast(width)
	for i := range keys {
		b.take(s, fmt.Sprint("later", i), 1)
	}
	require.Less(t, s.Uncounted()-before, int64(keys))
	require.LessOrEqual(t, s.Keys(), shardCount)

	b.now += width + limiter.CountersLast(width)
	for range shardCount {
		s.Sweep(b.now)
	}
	require.Zero(t, s.Keys())
}

// Whatever fails, the units that nodes admit are counted after recovery: exactly, unless the
// store lost its data, which loses nothing that nodes remember.
func TestTotalsAreExact(t *testing.T) {
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 16))
		b := newBench(t)
		b.limit.Limit = 1_000_000
		nodes := []*Store{b.node("1"), b.node("2"), b.node("3")}
		passed := map[string]int64{}
		told := map[string]int64{} // what those heard who tell other regions
		slot := func(key string, at int64) string { return fmt.Sprint(key, at-at%width) }
		heard := func(s *Store, lose float64) {
			totals, _ := s.Flush(t.Context())
			for i := range totals {
				if random.Float64() >= lose {
					name := fmt.Sprint(totals[i].Key, totals[i].Start)
					told[name] = max(told[name], totals[i].Count)
					s.Confirm(totals[i : i+1])
				}
			}
		}
		for range 300 {
			s, key := nodes[random.IntN(3)], fmt.Sprint(random.IntN(5))
			switch random.IntN(10) {
			case 0:
				b.now += random.Int64N(width / 8)
			case 1:
				heard(s, 0.5)
			case 2:
				b.err = nil
				if random.IntN(2) == 0 {
					b.err = errors.New("unreachable")
				}
			case 3:
				if random.IntN(4) == 0 {
					b.lose()
				}
			default:
				cost := 1 + random.Int64N(9)
				d := b.take(s, key, cost)
				require.True(t, d.Allowed)
				passed[slot(string(storetest.Key(key, b.limit)), d.Results[0].TakenAt)] += cost
			}
		}
		b.err = nil
		for _, s := range nodes { // each notices a loss at its next count
			for key := range 5 {
				d := b.take(s, fmt.Sprint(key), 1)
				passed[slot(string(storetest.Key(fmt.Sprint(key), b.limit)), d.Results[0].TakenAt)]++
			}
		}
		for range 4 {
			for _, s := range nodes {
				heard(s, 0)
			}
		}
		now := b.now - b.now%width
		for key := range 5 {
			name := slot(string(storetest.Key(fmt.Sprint(key), b.limit)), now)
			require.Equal(t, passed[name], told[name], "seed %d, %s", seed, name)
		}
		for name, n := range told {
			require.LessOrEqual(t, n, passed[name], "seed %d, %s", seed, name)
		}
	}
}

// Concurrent requests and flushes lose nothing.
func TestConcurrentFlushes(t *testing.T) {
	b := newBench(t)
	b.limit.Limit = 1_000_000
	s := b.node("1")
	var asking sync.WaitGroup
	const callers, each = 8, 500
	for range callers {
		asking.Go(func() {
			var d limiter.Decision
			for i := range each {
				_ = s.Take(context.Background(), b.checks(fmt.Sprint(i%20), 1), &d)
			}
		})
	}
	done := make(chan struct{})
	go func() { asking.Wait(); close(done) }()
	for asked := false; !asked; {
		select {
		case <-done:
			asked = true
		default:
		}
		totals, _ := s.Flush(t.Context())
		s.Confirm(totals)
		s.TellAgain(func(key string) bool { return len(key)%2 == 0 })
		s.Sweep(b.now)
	}
	s.TellAgain(func(string) bool { return true })
	totals, _ := s.Flush(t.Context())
	sum := int64(0)
	for i := range totals {
		sum += totals[i].Count
	}
	require.EqualValues(t, callers*each, sum)
}

// next admits everything and allocates nothing.
type next struct{ bench }

func (*next) Take(_ context.Context, checks []limiter.Check, d *limiter.Decision) error {
	d.Reset(len(checks))
	d.Allowed = true
	d.Results[0] = limiter.Result{Allowed: true, Charged: true, TakenAt: storetest.Epoch}
	return nil
}

func TestCountingAllocatesNothing(t *testing.T) {
	b := newBench(t)
	s := New(Config{Next: limiter.NoDenied{FullStore: &next{}}, Merger: b, Node: "1"})
	checks := b.checks("a", 1)
	var d limiter.Decision
	ctx := context.Background()
	require.Zero(t, testing.AllocsPerRun(1000, func() {
		if err := s.Take(ctx, checks, &d); err != nil {
			t.Error(err)
		}
	}))
}
