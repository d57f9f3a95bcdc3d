package consul

import (
	"encoding/json"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/testenv"
)

func TestLock(t *testing.T) {
	t.Parallel()
	server := testenv.StartConsul(t, testenv.ConsulOptions{})
	c, ctx := open(t, Config{Addr: server.Addr()}), t.Context()
	ana, bob := NewLock("ana", time.Minute), NewLock("bob", time.Minute)
	// takes requires that a lock is acquired, or that other holds it.
	takes := func(what string, l Lock, other *Lock) {
		t.Helper()
		got, err := c.Lock(ctx, what, l)
		require.NoError(t, err)
		require.Equal(t, other, got)
	}
	takes("rules", ana, nil)
	takes("rules", ana, nil)
	takes("rules", bob, &ana)
	takes("shedder", bob, nil)
	require.NoError(t, c.Unlock(ctx, "rules", bob), "it is not bob's")
	takes("rules", bob, &ana)
	for range 2 {
		require.NoError(t, c.Unlock(ctx, "rules", ana))
	}
	takes("rules", bob, nil)

	// Values that do not lock: an expiry that has passed, one that is too late, and
	// invalid data.
	until := func(after time.Duration) []byte {
		text, err := json.Marshal(Lock{By: "ana", Since: time.Now(), Until: time.Now().Add(after)})
		require.NoError(t, err)
		return text
	}
	for _, left := range [][]byte{until(-time.Millisecond), until(longestLock + time.Minute), nil, []byte("{"), []byte("null"), []byte(`{"until":7}`)} {
		server.Set(t, "weir/rules/lock", left)
		takes("rules", bob, nil)
	}
	longest := NewLock("x", time.Hour)
	require.Equal(t, longestLock, longest.Until.Sub(longest.Since))

	// Of many concurrent attempts, exactly one acquires it.
	for round := range 10 {
		server.Remove(t, "weir/rules/lock")
		var all sync.WaitGroup
		var took atomic.Int32
		for i := range 8 {
			all.Go(func() {
				other, err := c.Lock(ctx, "rules", NewLock(fmt.Sprint(i), time.Minute))
				if err == nil && other == nil {
					took.Add(1)
				}
			})
		}
		all.Wait()
		require.EqualValues(t, 1, took.Load(), "round %d", round)
	}

	_, err := c.Lock(ctx, "../x", ana)
	require.ErrorContains(t, err, "not a key under weir/")
	server.Kill()
	_, err = c.Lock(ctx, "rules", ana)
	require.Error(t, err)
	require.Error(t, c.Unlock(ctx, "rules", ana))
}
