package documents

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weir-edge/weir/pkg/region/consul"
)

// cachedDocument is a good document with characters that JSON must escape.
const cachedDocument = "# \"quotes\", <angles>,\ttabs \\ and é\nrules:\n  - {id: a, key: [client_ip], limit: 1, window: 1h}\n"

// europe is the owner for which tests write and read.
var europe = Owner{Region: "eu-west", Prefix: "weir"}

func encodedCache(t testing.TB) []byte {
	t.Helper()
	data, err := encodeCache(europe, &Cached{Pointer: consul.NewPointer([]byte(cachedDocument), "op@example", time.Now()), Document: []byte(cachedDocument)})
	require.NoError(t, err)
	return data
}

func TestCacheRoundTrip(t *testing.T) {
	data := encodedCache(t)
	p, err := decodeCache(data, europe)
	require.NoError(t, err)
	require.Equal(t, cachedDocument, string(p.Document))
	require.Equal(t, "op@example", p.Pointer.AppliedBy)
	rapid.Check(t, func(t *rapid.T) {
		document := rapid.String().Draw(t, "document")
		pointer := consul.NewPointer([]byte(document), rapid.String().Draw(t, "by"), time.Unix(rapid.Int64Range(0, 1<<32).Draw(t, "at"), 0))
		data, err := encodeCache(europe, &Cached{Pointer: pointer, Document: []byte(document)})
		require.NoError(t, err)
		p, err := decodeCache(data, europe)
		require.NoError(t, err)
		require.Equal(t, document, string(p.Document))
		require.Equal(t, pointer.SHA256, p.Pointer.SHA256)
	})
}

// No damage goes undetected, wherever it is.
func TestDamagedCacheIsNotRead(t *testing.T) {
	whole := encodedCache(t)
	damaged := func(data []byte, what string, at int) {
		t.Helper()
		_, err := decodeCache(data, europe)
		require.ErrorIs(t, err, errDamaged, "%s at byte %d: %q", what, at, data)
	}
	for at := range whole {
		damaged(whole[:at], "cut off", at)
		for bit := range 8 {
			flipped := append([]byte(nil), whole...)
			flipped[at] ^= 1 << bit
			damaged(flipped, "a bit flipped", at)
		}
		damaged(append(append([]byte(nil), whole[:at]...), whole[at+1:]...), "a byte lost", at)
		damaged(append(append(append([]byte(nil), whole[:at]...), ' '), whole[at:]...), "a space", at)
		zeroed := append([]byte(nil), whole...)
		clear(zeroed[at:])
		damaged(zeroed, "zeroes", at)
	}
	damaged(append(append([]byte(nil), whole...), whole...), "twice", len(whole))

	// An intact file that lies about its document.
	pointer := consul.NewPointer([]byte("other"), "", time.Now())
	lie, err := encodeCache(europe, &Cached{Pointer: pointer, Document: []byte(cachedDocument)})
	require.NoError(t, err)
	damaged(lie, "another document", 0)
}

func FuzzCache(f *testing.F) {
	whole := encodedCache(f)
	f.Add(whole)
	f.Add(whole[:len(whole)/2])
	f.Add([]byte("{}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := decodeCache(data, europe)
		if err != nil {
			return
		}
		again, err := encodeCache(europe, p)
		require.NoError(t, err)
		require.Equal(t, again, data)
		require.Equal(t, p.Pointer.SHA256, consul.NewPointer(p.Document, "", time.Time{}).SHA256)
	})
}

// A deleted file is rewritten without any news from Consul.
func TestDeletedCacheIsWrittenAgain(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "rules.json")
	log := slog.New(slog.DiscardHandler)
	failures := atomic.Int32{}
	c := newCache(file, NewCondition(log, "bad", "again", nil), func() { failures.Add(1) })
	c.lookEvery = 10 * time.Millisecond
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	running.Go(func() { c.run(ctx) })
	p := consul.NewPointer([]byte(cachedDocument), "test", time.Now())
	holds := func(what string) {
		t.Helper()
		eventually(t, what, func() bool {
			kept, err := ReadCache(file, europe)
			return err == nil && kept.Pointer.SHA256 == p.SHA256
		})
	}
	written := &content{p.SHA256, func() ([]byte, error) {
		return encodeCache(europe, &Cached{Pointer: p, Document: []byte(cachedDocument)})
	}}
	c.put(written)
	holds("it is written")
	c.put(written)
	eventually(t, "the same is taken", func() bool { return len(c.next) == 0 })
	require.NoError(t, os.Remove(file))
	holds("it is written again")
	require.True(t, c.state.View().OK)
	require.Zero(t, failures.Load())
}
