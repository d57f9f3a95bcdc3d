package documents

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/adminapi"
	"github.com/weir-edge/weir/internal/testenv"
	"github.com/weir-edge/weir/pkg/region/consul"
)

// A third kind of document, complete: toyKeeper and its toy are all that a node needs
// to follow one, with canaries, a copy on disk, and refusals.
type toy struct{ word string }

func parseToy(text []byte) (*toy, error) {
	if len(strings.Fields(string(text))) != 1 {
		return nil, errors.New("toy: must be one word")
	}
	return &toy{word: string(text)}, nil
}

type toyKeeper struct {
	*Keeper[toy]
	active atomic.Pointer[toy]
}

func newToyKeeper(t *testing.T, c Config[toy]) *toyKeeper {
	t.Helper()
	k := &toyKeeper{}
	c.Log = slog.New(slog.DiscardHandler)
	c.Activate = func(d *Document[toy], _ bool) error { k.active.Store(d.Compiled); return nil }
	var err error
	k.Keeper, err = New(c)
	require.NoError(t, err)
	return k
}

// is reports whether the toy is active, and shown to be: the keeper shows what it has activated.
func (k *toyKeeper) is(word string) bool {
	shown := k.State().Active
	return shown != nil && shown.Compiled.word == word && k.active.Load() == shown.Compiled
}

const patience = testenv.Patience

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	require.Eventually(t, ok, patience, 5*time.Millisecond, what)
}

func TestAThirdKindOfDocument(t *testing.T) {
	client, err := consul.Open(consul.Config{Addr: testenv.StartConsul(t, testenv.ConsulOptions{}).Addr()})
	require.NoError(t, err)
	t.Cleanup(client.Close)
	documents, cache := client.Documents("toys"), filepath.Join(t.TempDir(), "toys.json")
	config := Config[toy]{Kind: Kind[toy]{Name: "toys", What: "toys", Compile: parseToy, CanaryOf: "ams1"}, Node: Node{Consul: client, Owner: europe}, Cache: cache}
	start := func() (*toyKeeper, func()) {
		k := newToyKeeper(t, config)
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { k.Run(ctx) })
		t.Cleanup(running.Wait)
		t.Cleanup(stop)
		return k, stop
	}
	index := uint64(0)
	apply := func(text string) consul.Pointer {
		t.Helper()
		_, err := documents.Put(t.Context(), []byte(text))
		require.NoError(t, err)
		p := consul.NewPointer([]byte(text), "test", time.Now())
		ok, err := documents.Activate(t.Context(), consul.Change{Pointer: p}, index)
		require.NoError(t, err)
		require.True(t, ok)
		_, index, err = documents.Current(t.Context())
		require.NoError(t, err)
		return p
	}
	k, stop := start()
	require.Nil(t, k.active.Load(), "nothing is published yet")
	is := func(word string) {
		t.Helper()
		eventually(t, word, func() bool { return k.is(word) })
	}
	apply("boat")
	is("boat")
	boat := k.active.Load()

	bad := apply("two words")
	eventually(t, "it is refused", func() bool { return k.State().Refused != nil })
	refused := k.State().Refused
	require.Equal(t, adminapi.Refusal{At: refused.At, Version: bad.Version, Errors: []string{"document: toy: must be one word"}}, *refused)
	require.Same(t, boat, k.active.Load(), "the previous toy stays active")

	apply("boat")
	_, err = documents.Put(t.Context(), []byte("kite"))
	require.NoError(t, err)
	trial, ends := consul.NewPointer([]byte("kite"), "test", time.Now()), time.Now().Add(time.Hour)
	trial.ExpiresAt = &ends
	ok, err := documents.SetCanary(t.Context(), "ams1", trial, 0)
	require.NoError(t, err)
	require.True(t, ok)
	is("kite")
	require.True(t, k.State().Canary)
	require.NoError(t, client.Remove(t.Context(), documents.CanaryKey("ams1")))
	is("boat")
	require.Same(t, boat, k.active.Load(), "what a canary replaced is not compiled again")

	eventually(t, "it is on disk", func() bool { _, err := os.Stat(cache); return err == nil })
	stop()
	again := newToyKeeper(t, config)
	require.Equal(t, "boat", again.active.Load().word)
	require.Equal(t, adminapi.SourceCache, again.State().Source())
}
