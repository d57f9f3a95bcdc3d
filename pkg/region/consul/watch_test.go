package consul

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/testenv"
)

func TestWatch(t *testing.T) {
	t.Parallel()
	server := testenv.StartConsul(t, testenv.ConsulOptions{})
	c := open(t, Config{Addr: server.Addr()})
	key := c.Key("rules", "current")
	w := watch(t, c, key)
	require.Nil(t, w.next(t), "missing, immediately")

	soon := func(value string) {
		t.Helper()
		start := time.Now()
		server.Set(t, key, []byte(value))
		e := w.next(t)
		require.NotNil(t, e)
		require.Equal(t, value, string(e.Value))
		require.Equal(t, key, e.Key)
		promised(t, time.Since(start), time.Second)
	}
	soon("a")
	soon("b")
	soon("")
	soon("c")
	server.Set(t, key, []byte("c"))
	server.Set(t, "weir/rules/other", []byte("x"))
	soon("d")

	start := time.Now()
	server.Remove(t, key)
	require.Nil(t, w.next(t))
	promised(t, time.Since(start), time.Second)
	soon("e")

	server.Kill()
	require.ErrorContains(t, w.failure(t), "consul "+server.Addr()+": read "+key+": ")
	require.ErrorContains(t, w.failure(t), "connection refused")
	server.Start()
	start = time.Now()
	w.success(t)
	soon("f")
	promised(t, time.Since(start), 10*time.Second)

	// A change while the watch is disconnected is not lost.
	server.Kill()
	w.failure(t)
	server.Start()
	server.Set(t, key, []byte("g"))
	require.Equal(t, "g", string(w.next(t).Value))
	for len(w) > 0 {
		require.False(t, (<-w).told, "the same content again")
	}
}

// Consul hangs with its connections open, then continues.
func TestWatchOutlastsAHang(t *testing.T) {
	t.Parallel()
	server := testenv.StartConsul(t, testenv.ConsulOptions{})
	c := open(t, Config{Addr: server.Addr()})
	w := watch(t, c, "weir/k")
	require.Nil(t, w.next(t))
	server.Suspend()
	_, _, err := c.Documents("rules").Current(t.Context())
	require.ErrorContains(t, err, "no answer within 5s")
	server.Resume()
	server.WaitHealthy()
	start := time.Now()
	server.Set(t, "weir/k", []byte("a"))
	require.Equal(t, "a", string(w.next(t).Value))
	promised(t, time.Since(start), 10*time.Second)
}

// A restored or new Consul counts from a lower index; waiting for the old one would take too
// long.
func TestWatchFollowsALossOfData(t *testing.T) {
	t.Parallel()
	old := testenv.StartConsul(t, testenv.ConsulOptions{})
	front := testenv.Forward(t, old.Addr())
	c := open(t, Config{Addr: front.Addr})
	for i := range 200 {
		old.Set(t, "weir/other", fmt.Append(nil, i))
	}
	old.Set(t, "weir/k", []byte("old"))
	old.Set(t, "weir/same", []byte("same"))
	k, same, gone := watch(t, c, "weir/k"), watch(t, c, "weir/same"), watch(t, c, "weir/other")
	before := k.next(t)
	require.Equal(t, "old", string(before.Value))
	require.Equal(t, "same", string(same.next(t).Value))
	require.NotNil(t, gone.next(t))

	fresh := testenv.StartConsul(t, testenv.ConsulOptions{})
	fresh.Set(t, "weir/k", []byte("fresh"))
	fresh.Set(t, "weir/same", []byte("same"))
	front.To(fresh.Addr())
	start := time.Now()
	after := k.next(t)
	require.Equal(t, "fresh", string(after.Value))
	require.Less(t, after.ModifyIndex, before.ModifyIndex)
	require.Nil(t, gone.next(t))
	fresh.Set(t, "weir/same", []byte("changed"))
	require.Equal(t, "changed", string(same.next(t).Value))
	promised(t, time.Since(start), 10*time.Second)
}
