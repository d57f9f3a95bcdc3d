package consul

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"
	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/testenv"
	"github.com/weir-edge/weir/pkg/certs"
)

func TestDocuments(t *testing.T) {
	t.Parallel()
	server := testenv.StartConsul(t, testenv.ConsulOptions{})
	// documents returns the documents of one subtest.
	documents := func(t *testing.T, prefix string) *Documents {
		return open(t, Config{Addr: server.Addr(), Prefix: prefix}).Documents("rules")
	}
	at := time.Date(2026, 3, 1, 10, 0, 0, 0, time.UTC)

	t.Run("put and load", func(t *testing.T) {
		d, ctx := documents(t, "put"), t.Context()
		small := []byte("rules: []\n")
		p := NewPointer(small, "ana", at)
		_, err := d.Load(ctx, p)
		require.ErrorIs(t, err, ErrMissing)
		require.ErrorContains(t, err, "put/rules/versions/"+p.Version+": the version is missing; apply the document again")

		for range 2 {
			version, err := d.Put(ctx, small)
			require.NoError(t, err)
			require.Equal(t, p.Version, version)
		}
		require.Equal(t, small, server.Stored(t, "put/rules/versions/"+p.Version), "as the operator wrote it")
		got, err := d.Load(ctx, p)
		require.NoError(t, err)
		require.Equal(t, small, got)

		large := []byte(strings.Repeat("rules: [] # and so on\n", 90_000))
		_, err = d.Put(ctx, large)
		require.NoError(t, err)
		got, err = d.Load(ctx, NewPointer(large, "", at))
		require.NoError(t, err)
		require.Equal(t, large, got)

		full := noise(maxValue)
		_, err = d.Put(ctx, full)
		require.NoError(t, err, "exactly Consul's maximum")
		_, err = d.Put(ctx, noise(maxValue+1))
		require.ErrorContains(t, err, "bytes after compression, over Consul's 524288 for one key; split or shorten it")
	})

	t.Run("corrupt", func(t *testing.T) {
		d, ctx := documents(t, "corrupt"), t.Context()
		document := []byte(strings.Repeat("rules: [] # and so on\n", 50_000))
		p := NewPointer(document, "ana", at)
		key := "corrupt/rules/versions/" + p.Version
		_, err := d.Put(ctx, document)
		require.NoError(t, err)
		good := server.Stored(t, key)
		names := "the pointer names sha256 " + p.SHA256 + ", the stored bytes have "
		for name, row := range map[string]struct {
			value []byte
			want  string
		}{
			"other bytes": {[]byte("rules: []\n"), names + NewPointer([]byte("rules: []\n"), "", at).SHA256},
			"empty":       {nil, names + NewPointer(nil, "", at).SHA256},
			"truncated":   {good[:len(good)/2], "decompress: unexpected EOF"},
			"flipped":     {append(append([]byte{}, good[:len(good)-5]...), append([]byte{good[len(good)-5] ^ 4}, good[len(good)-4:]...)...), "decompress: gzip: invalid checksum"},
		} {
			server.Set(t, key, row.value)
			_, err := d.Load(ctx, p)
			require.ErrorIs(t, err, ErrCorrupt, name)
			require.ErrorContains(t, err, key+": the stored document is corrupt: "+row.want)
			require.ErrorContains(t, err, "; delete the key and apply the document again")
			_, err = d.Put(ctx, document)
			require.ErrorIs(t, err, ErrCorrupt, name)
			require.ErrorContains(t, err, key)
		}
	})

	t.Run("point", func(t *testing.T) {
		d, ctx := documents(t, "point"), t.Context()
		p, index, err := d.Current(ctx)
		require.NoError(t, err)
		require.Nil(t, p)
		require.Zero(t, index)

		first := NewPointer([]byte("1"), "ana", at)
		ok, err := d.Activate(ctx, Change{Pointer: first}, 7)
		require.NoError(t, err)
		require.False(t, ok, "no value has index 7")
		ok, err = d.Activate(ctx, Change{Pointer: first}, 0)
		require.NoError(t, err)
		require.True(t, ok)
		ok, err = d.Activate(ctx, Change{Pointer: first}, 0)
		require.NoError(t, err)
		require.False(t, ok, "there is one")
		p, index, err = d.Current(ctx)
		require.NoError(t, err)
		require.Equal(t, first, *p)

		second := NewPointer([]byte("2"), "bob", at)
		ok, err = d.Activate(ctx, Change{Pointer: second}, index)
		require.NoError(t, err)
		require.True(t, ok)
		ok, err = d.Activate(ctx, Change{Pointer: first}, index)
		require.NoError(t, err)
		require.False(t, ok)

		server.Set(t, d.CurrentKey(), []byte("{}"))
		p, index, err = d.Current(ctx)
		require.ErrorContains(t, err, "point/rules/current: sha256: must be 64 hex digits in lower case")
		require.Nil(t, p)
		ok, err = d.Activate(ctx, Change{Pointer: NewPointer([]byte("3"), "bob", at)}, index)
		require.NoError(t, err)
		require.True(t, ok, "unreadable content can be replaced")
	})

	t.Run("one of many writers wins", func(t *testing.T) {
		d, ctx := documents(t, "race"), t.Context()
		for round := range 20 {
			_, index, err := d.Current(ctx)
			require.NoError(t, err)
			const writers = 4
			var won [writers]bool
			var failed [writers]error
			var pointers [writers]Pointer
			var all sync.WaitGroup
			for i := range writers {
				pointers[i] = NewPointer(fmt.Appendf(nil, "%d %d", round, i), fmt.Sprint("writer ", i), at)
				all.Go(func() { won[i], failed[i] = d.Activate(ctx, Change{Pointer: pointers[i]}, index) })
			}
			all.Wait()
			winners := 0
			p, _, err := d.Current(ctx)
			require.NoError(t, err)
			for i := range writers {
				require.NoError(t, failed[i])
				if won[i] {
					winners++
					require.Equal(t, pointers[i], *p)
				}
			}
			require.Equal(t, 1, winners)
		}
	})

	t.Run("history", func(t *testing.T) {
		d, ctx := documents(t, "history"), t.Context()
		changes, wrong, err := d.History(ctx, 0)
		require.NoError(t, err)
		require.Empty(t, wrong)
		require.Empty(t, changes)

		var want []Change
		for i, after := range []time.Duration{0, time.Nanosecond, 100 * time.Millisecond, 120 * time.Millisecond, time.Second} {
			c := Change{Pointer: NewPointer(fmt.Append(nil, i), "ana", at.Add(after)), Message: fmt.Sprint("change ", i)}
			if i > 0 {
				c.Replaced = want[0].Version
			}
			want = append([]Change{c}, want...)
		}
		for _, i := range []int{3, 0, 4, 1, 2, 2} {
			require.NoError(t, d.Record(ctx, want[i]))
		}
		changes, wrong, err = d.History(ctx, 0)
		require.NoError(t, err)
		require.Empty(t, wrong)
		require.Equal(t, want, changes)
		keys, _, err := server.Client().KV().Keys("history/rules/history/", "", nil)
		require.NoError(t, err)
		require.Len(t, keys, len(want))
		require.Equal(t, "history/rules/history/2026-03-01T10:00:00.000000000Z-"+want[4].Version, keys[0])
		require.Equal(t, "history/rules/history/2026-03-01T10:00:01.000000000Z-"+want[0].Version, keys[4], "keys sort by time")

		server.Set(t, "history/rules/history/", nil)
		server.Set(t, "history/rules/history/broken", []byte("x"))
		server.Set(t, "history/rules/history/a b", []byte("x"))
		changes, wrong, err = d.History(ctx, 0)
		require.NoError(t, err)
		require.Len(t, wrong, 2)
		require.ErrorContains(t, wrong[0], "history/rules/history/broken: is not a JSON object")
		require.ErrorContains(t, wrong[0], "; correct or delete the key")
		require.ErrorContains(t, wrong[1], `: "history/rules/history/a b": is not the name of a change`)
		require.Equal(t, want, changes)

		changes, wrong, err = d.History(ctx, 2)
		require.NoError(t, err)
		require.Len(t, wrong, 2)
		require.Equal(t, want[:2], changes, "the newest")
		for _, c := range want[:2] {
			recorded, err := d.Recorded(ctx, c.Pointer)
			require.NoError(t, err)
			require.True(t, recorded)
		}
		recorded, err := d.Recorded(ctx, NewPointer([]byte("other"), "ana", at))
		require.NoError(t, err)
		require.False(t, recorded)
	})

}

func TestACL(t *testing.T) {
	t.Parallel()
	server := testenv.StartConsul(t, testenv.ConsulOptions{ACL: true})
	const policy = `
key_prefix "weir/rules/" { policy = "read" }
service "weir-edge" { policy = "read" }
node_prefix "" { policy = "read" }`
	accessor, secret := server.NewToken(t, policy)
	_, poor := server.NewToken(t, `key "weir/rules/current" { policy = "read" }`)
	_, half := server.NewToken(t, policy+"\n"+`key "weir/rules/history/2" { policy = "deny" }`)
	file := write(t, "token", secret)
	with := func(token string) *Client {
		return open(t, Config{Addr: server.Addr(), TokenFile: write(t, "token", token)})
	}
	ctx := t.Context()
	server.Set(t, "weir/rules/current", []byte("a"))
	value, err := json.Marshal(NewPointer([]byte("x"), "ana", time.Unix(1, 0)))
	require.NoError(t, err)
	server.Set(t, "weir/rules/history/1", value)
	server.Set(t, "weir/rules/history/2", value)

	t.Run("denied is not missing", func(t *testing.T) {
		for name, c := range map[string]*Client{
			"no token":  open(t, Config{Addr: server.Addr()}),
			"no policy": with(poor),
			"unknown":   with("11111111-2222-3333-4444-555555555555"),
		} {
			_, _, err := c.Documents("shedder").Current(ctx)
			require.ErrorContains(t, err, "read weir/shedder/current: answered 403", name)
			require.ErrorContains(t, err, "token", name)
			var status *StatusError
			require.ErrorAs(t, err, &status)
			require.Equal(t, 403, status.Code)
			_, err = c.Documents("shedder").Put(ctx, []byte("x"))
			require.ErrorContains(t, err, "answered 403 (")
		}
		_, err := with(secret).Documents("rules").Activate(ctx, Change{Pointer: NewPointer([]byte("x"), "ana", time.Now())}, 0)
		require.ErrorContains(t, err, "write weir/rules/current: answered 403 (Permission denied: token with AccessorID '"+accessor+"' lacks permission 'key:write' on \"weir/rules/current\"); put a token")
	})

	t.Run("a list that hides something is a failure", func(t *testing.T) {
		changes, _, err := with(secret).Documents("rules").History(ctx, 0)
		require.NoError(t, err)
		require.Len(t, changes, 2)
		for _, token := range []string{poor, half} {
			_, _, err = with(token).Documents("rules").History(ctx, 0)
			require.ErrorContains(t, err, "list weir/rules/history/: some entries are hidden from this token, which lacks permission 'key:read' on \"weir/rules/history/\"; add that to its policies")
		}
	})

	t.Run("revoked and replaced", func(t *testing.T) {
		c := open(t, Config{Addr: server.Addr(), TokenFile: file})
		w := watch(t, c, "weir/rules/current")
		require.Equal(t, "a", string(w.next(t).Value))
		_, err := server.Client().ACL().TokenDelete(accessor, nil)
		require.NoError(t, err)
		// The query in progress still answers; the next is refused.
		server.Set(t, "weir/rules/current", []byte("b"))
		require.ErrorContains(t, w.failure(t), "answered 403 (ACL not found")
		require.NoError(t, os.Remove(file))
		require.ErrorContains(t, w.until(t, "a failure to read the file", func(e event) bool {
			return e.err != nil && !strings.Contains(e.err.Error(), "answered 403") // the name of a temporary directory may contain 403
		}).err, "token_file: open "+file)

		_, secret := server.NewToken(t, policy)
		require.NoError(t, os.WriteFile(file, []byte(secret+"\n"), 0o600))
		start := time.Now()
		w.success(t)
		server.Set(t, "weir/rules/current", []byte("c"))
		require.Equal(t, "c", string(w.until(t, "c", func(e event) bool { return e.told && string(e.entry.Value) == "c" }).entry.Value))
		promised(t, time.Since(start), 10*time.Second)
	})
}

func TestTLS(t *testing.T) {
	t.Parallel()
	server := testenv.StartConsul(t, testenv.ConsulOptions{TLS: true})
	own := testenv.Certificates(t)
	get := func(config Config) error {
		_, _, err := open(t, config).Documents("rules").Current(t.Context())
		return err
	}
	require.NoError(t, get(Config{Addr: "https://" + server.Addr(), TLS: &certs.Client{CAFile: server.CAFile()}}))
	require.NoError(t, get(Config{Addr: server.Addr(), TLS: &certs.Client{CAFile: server.CAFile(), ServerName: "localhost"}}))
	require.NoError(t, get(Config{Addr: server.Addr(), TLS: &certs.Client{CAFile: server.CAFile(), CertFile: own.CertFile, KeyFile: own.KeyFile}}))
	require.ErrorContains(t, get(Config{Addr: "https://" + server.Addr()}), "certificate signed by unknown authority")
	require.ErrorContains(t, get(Config{Addr: server.Addr(), TLS: &certs.Client{CAFile: own.CAFile}}), "certificate signed by unknown authority")
	require.ErrorContains(t, get(Config{Addr: server.Addr(), TLS: &certs.Client{CAFile: server.CAFile(), ServerName: "other"}}), "not other")
	require.ErrorContains(t, get(Config{Addr: server.Addr()}), "HTTPS")
}

// One agent answers for any datacenter that its own can reach.
func TestOtherDatacenter(t *testing.T) {
	t.Parallel()
	all := testenv.StartConsuls(t, testenv.ConsulOptions{}, "eu-west", "us-east")
	far := open(t, Config{Addr: all[0].Addr(), Datacenter: "us-east"})
	w := watch(t, far, "weir/k")
	require.Nil(t, w.next(t))
	start := time.Now()
	all[1].Set(t, "weir/k", []byte("far"))
	require.Equal(t, "far", string(w.next(t).Value))
	promised(t, time.Since(start), time.Second)
	ok, err := far.Documents("rules").Activate(t.Context(), Change{Pointer: NewPointer([]byte("x"), "ana", time.Now())}, 0)
	require.NoError(t, err)
	require.True(t, ok)
	p, _, err := open(t, Config{Addr: all[0].Addr()}).Documents("rules").Current(t.Context())
	require.NoError(t, err)
	require.Nil(t, p, "each datacenter has its own keys")
	_, _, err = open(t, Config{Addr: all[0].Addr(), Datacenter: "mars"}).Documents("rules").Current(t.Context())
	require.ErrorContains(t, err, "No path to datacenter")
}

// Datacenters without a shared token: one forwards a request to another, which knows only its
// own token.
func TestInstancesViaNeedsNoSharedToken(t *testing.T) {
	t.Parallel()
	all := testenv.StartConsuls(t, testenv.ConsulOptions{ACL: true}, "eu-west", "us-east")
	client := func(server *testenv.Consul) *Client {
		_, token := server.NewToken(t, `service "weir-edge" { policy = "write" } node_prefix "" { policy = "read" }`)
		return open(t, Config{Addr: server.Addr(), TokenFile: write(t, "token", token)})
	}
	eu, us := client(all[0]), client(all[1])
	require.NoError(t, us.api.Agent().ServiceRegister(&api.AgentServiceRegistration{Name: Service, ID: "weir-edge-1", Address: "10.0.0.1", Port: 80}))
	require.Eventually(t, func() bool {
		nodes, err := us.InstancesVia(t.Context(), eu, "us-east", 5*time.Second)
		return err == nil && len(nodes) == 1 && nodes[0].Address == "10.0.0.1:80"
	}, testenv.Patience, 50*time.Millisecond)
	_, err := eu.InstancesVia(t.Context(), eu, "us-east", 5*time.Second)
	require.ErrorContains(t, err, "ACL not found", "with the token of another datacenter")
}

// A cluster's leader dies under its watches: those on the remaining servers see the next
// change.
func TestElection(t *testing.T) {
	t.Parallel()
	server := testenv.StartConsul(t, testenv.ConsulOptions{Servers: 3})
	server.Set(t, "weir/k", []byte("a"))
	watches := map[string]watching{}
	for _, addr := range server.Addrs() {
		watches[addr] = watch(t, open(t, Config{Addr: addr}), "weir/k")
		require.Equal(t, "a", string(watches[addr].next(t).Value))
	}
	dead := server.KillLeader()
	server.WaitHealthy()
	server.Set(t, "weir/k", []byte("b"))
	start := time.Now()
	for addr, w := range watches {
		if addr != dead {
			require.Equal(t, "b", string(w.next(t).Value), "%s, never missing or old in between", addr)
		}
	}
	promised(t, time.Since(start), 10*time.Second)
	watches[dead].failure(t)
	server.Start()
	require.Equal(t, "b", string(watches[dead].next(t).Value))
}
