package redisstore_test

import (
	"context"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/testenv"
	"github.com/weir-edge/weir/pkg/limiter"
	"github.com/weir-edge/weir/pkg/limiter/memory"
	"github.com/weir-edge/weir/pkg/limiter/redisstore"
	"github.com/weir-edge/weir/pkg/limiter/storetest"
)

// patience is a budget that no healthy call exhausts, however slow the machine.
const patience = testenv.Patience

func open(t testing.TB, c redisstore.Config) *redisstore.Store {
	t.Helper()
	s, err := redisstore.Open(c)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// onTestClock returns an opener of empty stores. It reuses one store, since opening a new
// one for each timeline would take longer than the timelines.
func onTestClock(t *testing.T) storetest.Open {
	server := testenv.Redis(t, testenv.Options{})
	var now func() int64
	var mu sync.Mutex // the store reads the clock in its own goroutine
	s := open(t, redisstore.Config{
		Mode: redisstore.Single, Addrs: []string{server.Addr}, Timeout: patience,
		Clock: func() int64 { mu.Lock(); defer mu.Unlock(); return now() },
	})
	return func(t *testing.T, clock func() int64) limiter.FullStore {
		mu.Lock()
		defer mu.Unlock()
		now = clock
		require.NoError(t, server.Client().FlushAll(context.Background()).Err())
		return s
	}
}

func TestTimelines(t *testing.T) { storetest.Run(t, onTestClock(t)) }

func TestProperties(t *testing.T) { storetest.RunProperties(t, 20, onTestClock(t)) }

func TestLeases(t *testing.T) {
	const sequences = 8
	want := storetest.RunLeases(t, sequences, func(_ *testing.T, clock func() int64) limiter.FullStore {
		return memory.New(memory.Config{Clock: clock})
	})
	require.Equal(t, want, storetest.RunLeases(t, sequences, onTestClock(t)), "as in memory")
}

func TestMoves(t *testing.T) {
	const sequences = 6
	want := storetest.RunMoves(t, sequences, func(_ *testing.T, clock func() int64) limiter.FullStore {
		return memory.New(memory.Config{Clock: clock})
	})
	require.Equal(t, want, storetest.RunMoves(t, sequences, onTestClock(t)), "as in memory")
}

func TestLeasedParts(t *testing.T) {
	const sequences = 6
	want := storetest.RunLeasedParts(t, sequences, func(_ *testing.T, clock func() int64) limiter.FullStore {
		return memory.New(memory.Config{Clock: clock})
	})
	require.Equal(t, want, storetest.RunLeasedParts(t, sequences, onTestClock(t)), "as in memory")
}

func TestTerms(t *testing.T) {
	const sequences = 6
	want := storetest.RunTerms(t, sequences, func(_ *testing.T, clock func() int64) limiter.FullStore {
		return memory.New(memory.Config{Clock: clock})
	})
	require.Equal(t, want, storetest.RunTerms(t, sequences, onTestClock(t)), "as in memory")
}

func TestOpened(t *testing.T) { storetest.RunOpened(t, onTestClock(t)) }

// What a probe learns about a store does not apply to its replacement.
func TestSettled(t *testing.T) { storetest.RunSettled(t, onTestClock(t)) }

func TestMerges(t *testing.T) {
	const sequences = 8
	want := storetest.RunMerges(t, sequences, func(_ *testing.T, clock func() int64) limiter.FullStore {
		return memory.New(memory.Config{Clock: clock})
	})
	require.Equal(t, want, storetest.RunMerges(t, sequences, onTestClock(t)), "as in memory")
}
