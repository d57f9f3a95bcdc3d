package consul

import (
	"net/http"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"
	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/testenv"
)

func TestCanaries(t *testing.T) {
	t.Parallel()
	server := testenv.StartConsul(t, testenv.ConsulOptions{})
	d, ctx := open(t, Config{Addr: server.Addr()}).Documents("rules"), t.Context()
	at := time.Date(2026, 3, 1, 10, 0, 0, 0, time.UTC)
	canary := func(document string) Pointer {
		expires := at.Add(5 * time.Minute)
		p := NewPointer([]byte(document), "ana", at)
		p.ExpiresAt = &expires
		return p
	}
	first, second := canary("1"), canary("2")
	follows := func(pop string, want *Pointer) (index uint64) {
		t.Helper()
		p, index, err := d.Canary(ctx, pop)
		require.NoError(t, err)
		require.Equal(t, want, p)
		return index
	}
	set1 := func(p Pointer, index uint64) bool {
		t.Helper()
		done, err := d.SetCanary(ctx, "ams1", p, index)
		require.NoError(t, err)
		return done
	}
	drop := func(index uint64) bool {
		t.Helper()
		done, err := d.DeleteCanary(ctx, "ams1", index)
		require.NoError(t, err)
		return done
	}
	require.Zero(t, follows("ams1", nil))
	require.True(t, drop(0), "there is none, as required")
	require.False(t, set1(first, 7), "no value has index 7")
	require.True(t, set1(first, 0))
	require.False(t, set1(second, 0), "there is one")
	index := follows("ams1", &first)
	require.True(t, set1(second, index))
	require.False(t, set1(first, index), "it has changed")
	require.False(t, drop(index), "nor is another's removed")
	require.False(t, drop(0))
	require.True(t, drop(follows("ams1", &second)))
	require.True(t, drop(index), "it is gone")
	require.Zero(t, follows("ams1", nil))

	// Unreadable content can be replaced or removed.
	for range 2 {
		server.Set(t, d.CanaryKey("ams1"), []byte("{}"))
		p, index, err := d.Canary(ctx, "ams1")
		require.ErrorContains(t, err, "weir/rules/canary/ams1: sha256: must be 64 hex digits")
		require.Nil(t, p)
		require.NotZero(t, index)
		require.True(t, set1(first, index))
		server.Set(t, d.CanaryKey("ams1"), nil)
		_, index, err = d.Canary(ctx, "ams1")
		require.Error(t, err)
		require.True(t, drop(index))
	}

	require.True(t, set1(first, 0))
	done, err := d.SetCanary(ctx, "ams2", second, 0)
	require.NoError(t, err)
	require.True(t, done)
	all, wrong, err := d.Canaries(ctx)
	require.NoError(t, err)
	require.Empty(t, wrong)
	require.Equal(t, map[string]Pointer{"ams1": first, "ams2": second}, all)

	// Only the transaction endpoint accepts arbitrary bytes in a key.
	const hostile = "weir/rules/canary/x\x1b]0;owned\a\n\u009b"
	ok, _, _, err := server.Client().Txn().Txn(api.TxnOps{{KV: &api.KVTxnOp{Verb: api.KVSet, Key: hostile, Value: server.Stored(t, d.CanaryKey("ams1"))}}}, nil)
	require.NoError(t, err)
	require.True(t, ok)
	server.Set(t, d.CanaryKey("ams2"), nil)
	all, wrong, err = d.Canaries(ctx)
	require.NoError(t, err, "listing works")
	require.Equal(t, map[string]Pointer{"ams1": first}, all)
	require.Len(t, wrong, 2)
	require.ErrorContains(t, wrong[0], "weir/rules/canary/ams2: is empty;")
	require.ErrorContains(t, wrong[1], `"weir/rules/canary/x\x1b]0;owned\a\n\u009b": must be 1 to 64 lower-case letters`)
	for _, r := range wrong[1].Error() {
		require.True(t, r >= ' ' && r < 0x7f, "%q", wrong[1].Error())
	}

	require.True(t, drop(follows("ams1", &first)))
	require.Zero(t, follows("ams1", nil))

	// One that is withdrawn stands in the history, once.
	require.True(t, set1(first, 0))
	index = follows("ams1", &first)
	end := Change{Pointer: NewPointer([]byte("1"), "bob", time.Now()), Canary: "ams1", Message: "too many limited"}
	for _, row := range []struct {
		index uint64
		done  bool
	}{{index - 1, false}, {index, true}, {index, false}} {
		done, err := d.WithdrawCanary(ctx, end, row.index)
		require.NoError(t, err)
		require.Equal(t, row.done, done)
	}
	require.Zero(t, follows("ams1", nil))
	changes, wrong, err := d.History(ctx, 0)
	require.NoError(t, err)
	require.Empty(t, wrong)
	require.Equal(t, []Change{end}, changes)

	away := answers(t, Config{}, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) }).Documents("rules")
	_, wrong, err = away.Canaries(ctx)
	require.ErrorContains(t, err, "list weir/rules/canary/: answered 500")
	require.Empty(t, wrong)
	_, wrong, err = away.History(ctx, 0)
	require.ErrorContains(t, err, "list weir/rules/history/: answered 500")
	require.Empty(t, wrong)
}

func TestVersions(t *testing.T) {
	t.Parallel()
	server := testenv.StartConsul(t, testenv.ConsulOptions{ACL: true})
	with := func(token string) *Documents {
		return open(t, Config{Addr: server.Addr(), TokenFile: write(t, "token", token)}).Documents("rules")
	}
	d := with(server.Token())
	versions, err := d.Versions(t.Context(), "")
	require.NoError(t, err)
	require.Empty(t, versions)
	for _, name := range []string{"", "b00000000000", "a00000000000", "A00000000000", "a0000000000", "a00000000000/b", "current"} {
		server.Set(t, "weir/rules/versions/"+name, nil)
	}
	versions, err = d.Versions(t.Context(), "")
	require.NoError(t, err)
	require.Equal(t, []string{"a00000000000", "b00000000000"}, versions)

	_, half := server.NewToken(t, `key "weir/rules/versions/a00000000000" { policy = "read" }`)
	_, err = with(half).Versions(t.Context(), "")
	require.ErrorContains(t, err, "list weir/rules/versions/: some entries are hidden from this token")
}
