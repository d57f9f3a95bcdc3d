package consul

import (
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
	ana, bob := NewLock("ana"), NewLock("bob")
	// takes fails the test unless it gets the lock, or another is in the way.
	takes := func(what string, l Lock, other *Lock) (index uint64) {
		t.Helper()
		index, got, err := c.Lock(ctx, what, l, 0)
		require.NoError(t, err)
		if other == nil {
			require.Nil(t, got)
			require.NotZero(t, index)
			return index
		}
		require.Equal(t, *other, got.Lock)
		require.Zero(t, index)
		return got.Index
	}
	first := takes("rules", ana, nil)
	require.Equal(t, first, takes("rules", ana, nil))
	require.Equal(t, first, takes("rules", bob, &ana))
	takes("shedder", bob, nil)
	require.NoError(t, c.Unlock(ctx, "rules", bob), "it is not bob's")
	takes("rules", bob, &ana)
	for range 2 {
		require.NoError(t, c.Unlock(ctx, "rules", ana))
	}
	takes("rules", bob, nil)
	seen, err := c.Locked(ctx, "rules")
	require.NoError(t, err)
	require.Equal(t, bob, seen.Lock)

	// Values that are no locks.
	for _, left := range []string{"", "{", "null", `{"id":7}`, `{"by":"ana","since":"2026-03-01T10:00:00Z"}`} {
		server.Set(t, "weir/rules/lock", []byte(left))
		takes("rules", bob, nil)
	}

	// Of many concurrent attempts, exactly one acquires it.
	for round := range 10 {
		server.Remove(t, "weir/rules/lock")
		var all sync.WaitGroup
		var took atomic.Int32
		for i := range 8 {
			all.Go(func() {
				_, other, err := c.Lock(ctx, "rules", NewLock(fmt.Sprint(i)), 0)
				if err == nil && other == nil {
					took.Add(1)
				}
			})
		}
		all.Wait()
		require.EqualValues(t, 1, took.Load(), "round %d", round)
	}

	_, _, err = c.Lock(ctx, "../x", ana, 0)
	require.ErrorContains(t, err, "not a key under weir/")
	server.Kill()
	_, _, err = c.Lock(ctx, "rules", ana, 0)
	require.Error(t, err)
	require.Error(t, c.Unlock(ctx, "rules", ana))
	_, err = c.Renew(ctx, "rules", ana, first)
	require.Error(t, err)
}

// A displaced holder can neither renew its lock nor write under it.
func TestDisplaced(t *testing.T) {
	t.Parallel()
	server := testenv.StartConsul(t, testenv.ConsulOptions{})
	c, ctx := open(t, Config{Addr: server.Addr()}), t.Context()
	ana, bob := NewLock("ana"), NewLock("bob")
	lost := func(err error, by *Lock) {
		t.Helper()
		var d *LockLostError
		require.ErrorAs(t, err, &d)
		require.Equal(t, by, d.By)
	}
	d := c.Documents("rules")
	point := func(index, lock uint64) (bool, error) {
		return d.Fenced(Fence{"rules", lock}).Activate(ctx, Change{Pointer: NewPointer([]byte("x"), "ana", time.Now())}, index)
	}
	current := func() uint64 {
		_, index, err := d.Current(ctx)
		require.NoError(t, err)
		return index
	}
	first, _, err := c.Lock(ctx, "rules", ana, 0)
	require.NoError(t, err)
	done, err := point(0, first)
	require.NoError(t, err)
	require.True(t, done)
	done, err = point(0, first)
	require.NoError(t, err)
	require.False(t, done, "another writer was faster")

	second, err := c.Renew(ctx, "rules", ana, first)
	require.NoError(t, err)
	require.Greater(t, second, first)
	third, err := c.Renew(ctx, "rules", ana, first)
	require.NoError(t, err, "the answer to the one before was lost")
	seen, err := c.Locked(ctx, "rules")
	require.NoError(t, err)
	require.Equal(t, third, seen.Index)
	require.True(t, seen.Renewed.After(ana.Renewed))

	_, other, err := c.Lock(ctx, "rules", bob, second)
	require.NoError(t, err)
	require.NotNil(t, other, "it was renewed")
	_, other, err = c.Lock(ctx, "rules", bob, third)
	require.NoError(t, err)
	require.Nil(t, other)
	_, err = c.Renew(ctx, "rules", ana, third)
	lost(err, &bob)
	before := current()
	_, err = point(before, third)
	lost(err, &bob)
	require.NoError(t, c.Unlock(ctx, "rules", ana), "not hers any more")
	require.NoError(t, c.Unlock(ctx, "rules", bob))
	_, err = c.Renew(ctx, "rules", ana, third)
	lost(err, nil)
	_, err = point(before, third)
	lost(err, nil)
	require.Equal(t, before, current())
}

// A token without write permission is refused in a transaction as in any other request.
func TestDeniedUnderALock(t *testing.T) {
	t.Parallel()
	server := testenv.StartConsul(t, testenv.ConsulOptions{ACL: true})
	_, secret := server.NewToken(t, `key "weir/rules/lock" { policy = "write" }`)
	ctx := t.Context()
	c := open(t, Config{Addr: server.Addr(), TokenFile: write(t, "token", secret)})
	index, _, err := c.Lock(ctx, "rules", NewLock("ana"), 0)
	require.NoError(t, err)
	_, err = c.Documents("rules").Fenced(Fence{"rules", index}).ContinuingFrom(&End{}).Activate(ctx, Change{Pointer: NewPointer([]byte("x"), "ana", time.Now())}, 0)
	require.ErrorContains(t, err, "write weir/rules/current: answered 403 (Permission denied: ")
	var status *StatusError
	require.ErrorAs(t, err, &status)
	require.Equal(t, 403, status.Code)
	_, _, err = open(t, Config{Addr: server.Addr(), TokenFile: write(t, "token", "11111111-2222-3333-4444-555555555555")}).Lock(ctx, "rules", NewLock("bob"), 0)
	require.ErrorContains(t, err, "answered 403")
}
