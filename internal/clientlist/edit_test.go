package clientlist

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/weir-edge/weir/internal/testenv"
	"github.com/weir-edge/weir/pkg/region/consul"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// region holds one test's keys.
type region struct {
	*testing.T
	server *testenv.Consul
	client *consul.Client
}

func (r *region) apply(list ...Edit) Outcome {
	r.Helper()
	out, err := r.try(list...)
	require.NoError(r, err)
	return out
}

func (r *region) try(list ...Edit) (Outcome, error) {
	e := Edits{List: list, By: "ana", Message: "test", Now: noon.Add(time.Hour)}
	return e.Apply(r.Context(), r.client)
}

func (r *region) networks() (list []string) {
	r.Helper()
	l, err := Read(r.Context(), r.client)
	require.NoError(r, err)
	for _, e := range l.Entries() {
		list = append(list, e.Network.String())
	}
	return list
}

func edit(network string, action Action, lasts time.Duration) Edit {
	e := entry(network, action, lasts)
	return Edit{e.Network, &e.Decision}
}

func TestEdits(t *testing.T) {
	server := testenv.StartConsul(t, testenv.ConsulOptions{})
	for name, f := range map[string]func(*region){"change": editsChange, "race": editsRace, "overtaken": editsOvertaken, "many": editsMany, "full": editsFull, "own": editsOwn, "damaged": editsDamaged} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client, err := consul.Open(consul.Config{Addr: server.Addr(), Prefix: "networks-" + name})
			require.NoError(t, err)
			t.Cleanup(client.Close)
			f(&region{t, server, client})
		})
	}
}

func editsChange(r *region) {
	require.Empty(r, r.networks())
	require.Zero(r, r.apply(Edit{Network: netip.MustParsePrefix("203.0.113.0/24")}), "nothing is there to remove")
	first := r.apply(edit("203.0.113.0/24", Block, 0), edit("2001:db8::/32", Allow, 2*time.Hour))
	require.Equal(r, 2, first.Changed)
	require.Equal(r, []string{"203.0.113.0/24", "2001:db8::/32"}, r.networks())

	// No index recurs, because an edit that was overtaken still removes those that it replaced.
	r.apply(edit("192.0.2.0/24", Block, 0))
	recurring := r.apply(Edit{Network: netip.MustParsePrefix("192.0.2.0/24")})
	require.Equal(r, []string{"203.0.113.0/24", "2001:db8::/32"}, r.networks())
	require.NotEqual(r, first.Version, recurring.Version)
	first = recurring

	// Repeating a decision keeps its first author and time.
	again := edit("203.0.113.0/24", Block, 0)
	again.Decision.By, again.Decision.Since = "ben", noon.Add(time.Minute)
	require.Equal(r, Outcome{Version: first.Version}, r.apply(again))
	again.Decision.Reason = "another"
	require.Equal(r, 1, r.apply(again).Changed)

	// The next edit drops an expired entry.
	ended := edit("203.0.113.0/24", Block, time.Minute)
	require.Equal(r, 1, r.apply(ended).Changed)
	require.Len(r, r.networks(), 2)
	require.Equal(r, 1, r.apply(edit("203.0.113.0/24", Allow, 0)).Changed)
	last := r.apply(Edit{Network: netip.MustParsePrefix("203.0.113.0/24")}, Edit{Network: netip.MustParsePrefix("2001:db8::/32")})
	require.Equal(r, 2, last.Changed)
	require.Empty(r, r.networks())

	// The history records every change, its chain is intact, and its newest entry is the active
	// version.
	docs := r.client.Documents(Kind)
	changes, wrong, err := docs.History(r.Context(), 0)
	require.NoError(r, err)
	require.Empty(r, wrong)
	require.Len(r, changes, 7)
	audit, err := docs.Audit(r.Context())
	require.NoError(r, err)
	p, _, err := docs.Current(r.Context())
	require.NoError(r, err)
	require.NoError(r, docs.Active(r.Context(), audit, *p))
	require.Empty(r, audit.Faults)
	require.Equal(r, last.Version, p.Version)

	_, err = r.try(Edit{netip.MustParsePrefix("203.0.113.0/24"), &Decision{Action: "drop"}})
	require.ErrorContains(r, err, `action: must be block or allow (got "drop")`)
}

// Concurrent changes to one chunk lose nothing.
func editsRace(r *region) {
	var same []string
	want := chunkOf(netip.MustParsePrefix("10.0.0.0/32"))
	for i := 0; len(same) < 8; i++ {
		if n := fmt.Sprintf("10.0.%d.%d/32", i/256, i%256); chunkOf(netip.MustParsePrefix(n)) == want {
			same = append(same, n)
		}
	}
	var all sync.WaitGroup
	for i, n := range same {
		all.Go(func() {
			_, err := r.try(edit(n, Block, 0), edit(fmt.Sprintf("198.51.100.%d/32", i), Block, 0))
			if err != nil {
				r.Error(err)
			}
		})
	}
	all.Wait()
	require.Len(r, r.networks(), 16)
}

// What another operator decides right after an edit is later, and stays.
func editsOvertaken(r *region) {
	after := sync.OnceFunc(func() { r.apply(edit("203.0.113.0/24", Allow, 0)) })
	target, err := url.Parse("http://" + r.server.Addr())
	require.NoError(r, err)
	proxy := httputil.NewSingleHostReverseProxy(target)
	between := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		proxy.ServeHTTP(w, q)
		if q.URL.Path == "/v1/txn" {
			after()
		}
	}))
	r.Cleanup(func() { between.Close(); http.DefaultTransport.(*http.Transport).CloseIdleConnections() })
	client, err := consul.Open(consul.Config{Addr: between.Listener.Addr().String(), Prefix: "networks-overtaken"})
	require.NoError(r, err)
	r.Cleanup(client.Close)
	e := Edits{List: []Edit{edit("203.0.113.0/24", Block, 0)}, By: "ben", Now: noon.Add(time.Hour)}
	out, err := e.Apply(r.Context(), client)
	require.NoError(r, err)
	require.Equal(r, 1, out.Changed)
	l, err := Read(r.Context(), r.client)
	require.NoError(r, err)
	require.Equal(r, Allow, l.Entries()[0].Action)
}

// An import takes one step; afterwards a saved file holds all of it.
func editsMany(r *region) {
	const n = 20_000
	var list []Edit
	for _, e := range many(n) {
		list = append(list, Edit{e.Network, &e.Decision})
	}
	require.Equal(r, n, r.apply(list...).Changed)
	l, err := Read(r.Context(), r.client)
	require.NoError(r, err)
	require.Len(r, l.Entries(), n)

	data, err := l.MarshalJSON()
	require.NoError(r, err)
	var again List
	require.NoError(r, again.UnmarshalJSON(data))
	require.Equal(r, l, &again)
	require.ErrorContains(r, again.UnmarshalJSON([]byte(strings.Replace(string(data), "drop list", "drop lust", 1))), "is not the one that the index names")
	require.Error(r, again.UnmarshalJSON(data[:len(data)-1]))

	// A change writes one chunk and keeps the list before; the next one drops the replaced chunk.
	before := r.keys()
	r.apply(edit("203.0.113.77/32", Block, 0))
	now := r.keys()
	require.Subset(r, now, before)
	require.Len(r, now, len(before)+1)
	r.apply(edit("203.0.113.77/32", Allow, 0))
	require.Len(r, r.keys(), len(before)+1)
	stored, err := r.client.Documents(Kind).Versions(r.Context(), "")
	require.NoError(r, err)
	require.Len(r, stored, 2)
	history, _, err := r.client.Documents(Kind).History(r.Context(), 0)
	require.NoError(r, err)
	require.Len(r, history, 3)
}

func (r *region) keys() []string {
	keys, err := r.client.Keys(r.Context(), r.client.Key(Kind, "chunks", ""))
	require.NoError(r, err)
	return keys
}

func editsFull(r *region) {
	var list []Edit
	for i, e := range many(Max) {
		d := e.Decision
		if i < 10 {
			d.Until = noon.Add(time.Minute) // expired when the edits run
		}
		list = append(list, Edit{e.Network, &d})
	}
	r.apply(list...)
	// Expired entries make room, whichever chunk they are in.
	var more []Edit
	for i := range 11 {
		more = append(more, edit(fmt.Sprintf("240.0.0.%d/32", i), Block, 0))
	}
	require.Equal(r, 10, r.apply(more[:10]...).Changed)
	_, err := r.try(more[10])
	require.ErrorContains(r, err, "a region holds at most 100000 networks, and would have 100001; remove some, or block wider ones")
	require.Len(r, r.networks(), Max)
}

// A remote list's edits keep other authors' decisions, including ones made just before.
func editsOwn(r *region) {
	r.apply(edit("203.0.113.0/24", Allow, 0), edit("198.51.100.0/24", Block, time.Minute)) // the second has expired
	d := remote("203.0.113.0/24", "drop").Decision
	e := Edits{Own: true, By: d.By, Message: "test", Now: noon.Add(time.Hour)}
	for _, n := range []string{"203.0.113.0/24", "198.51.100.0/24", "192.0.2.0/24"} {
		e.List = append(e.List, Edit{netip.MustParsePrefix(n), &d})
	}
	out, err := e.Apply(r.Context(), r.client)
	require.NoError(r, err)
	require.Equal(r, 2, out.Changed)
	for i := range e.List {
		e.List[i].Decision = nil
	}
	out, err = e.Apply(r.Context(), r.client)
	require.NoError(r, err)
	require.Equal(r, 2, out.Changed)
	require.Equal(r, []string{"203.0.113.0/24"}, r.networks())
}

func editsDamaged(r *region) {
	r.apply(edit("203.0.113.0/24", Block, 0), edit("198.51.100.0/24", Block, 0))
	x, _, err := current(r.Context(), r.client)
	require.NoError(r, err)
	number := chunkOf(netip.MustParsePrefix("203.0.113.0/24"))
	key := chunkKey(r.client, number, x.Chunks[partName(number)])
	_, err = r.server.Client().KV().Put(&api.KVPair{Key: key, Value: []byte(`{"decisions":[]}`)}, nil)
	require.NoError(r, err)
	_, err = Read(r.Context(), r.client)
	require.ErrorIs(r, err, ErrMismatch)
	require.ErrorContains(r, err, key)
	_, err = r.try(edit("203.0.113.0/24", Allow, 0))
	require.ErrorIs(r, err, ErrMismatch)

	_, err = r.server.Client().KV().Put(&api.KVPair{Key: CurrentKey(r.client), Value: []byte(`{}`)}, nil)
	require.NoError(r, err)
	_, err = Read(r.Context(), r.client)
	require.ErrorContains(r, err, CurrentKey(r.client)+": sha256: must be")
	// Without its pointer, the list is not empty.
	_, err = r.server.Client().KV().Delete(CurrentKey(r.client), nil)
	require.NoError(r, err)
	_, err = Read(r.Context(), r.client)
	require.ErrorIs(r, err, consul.ErrGone)
	_, err = r.try(edit("203.0.113.0/24", Allow, 0))
	require.ErrorIs(r, err, consul.ErrGone)
	// The last remedy.
	_, err = r.server.Client().KV().DeleteTree(r.client.Key(Kind, ""), nil)
	require.NoError(r, err)
	r.apply(edit("203.0.113.0/24", Allow, 0))
	require.Equal(r, []string{"203.0.113.0/24"}, r.networks())
}
