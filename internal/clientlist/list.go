package clientlist

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/weir-edge/weir/pkg/region/consul"
)

// List is a region's networks at one moment.
type List struct {
	Index  *Index // nil: nothing was published yet
	chunks [chunks]*Chunk
}

// Entries returns all entries, ordered by network.
func (l *List) Entries() (list []*Entry) {
	for _, c := range l.chunks {
		if c != nil {
			list = append(list, c.entries...)
		}
	}
	slices.SortFunc(list, func(a, b *Entry) int { return Compare(a.Network, b.Network) })
	return list
}

// Version returns the index's version, "" before anything was published.
func (l *List) Version() string {
	if l.Index == nil {
		return ""
	}
	return l.Index.Version
}

// ErrMismatch reports a chunk that the index does not name, because of a concurrent change or
// damage.
var ErrMismatch = errors.New("does not match the index; it is being changed, or is damaged")

// CurrentKey is the key of the index.
func CurrentKey(c *consul.Client) string { return c.Key(Kind, "current") }

func chunkKey(c *consul.Client, number int) string { return c.Key(Kind, "chunks", partName(number)) }

// atOnce bounds the concurrent reads of chunks.
const atOnce = 8

// Load reads the chunks that an index names, except those in known. If only is set, it reads
// only the chunks that only selects.
func Load(ctx context.Context, c *consul.Client, x *Index, known *List, only func(number int) bool) (*List, error) {
	l := &List{Index: x}
	var mu sync.Mutex
	var fault error
	var all sync.WaitGroup
	slots := make(chan struct{}, atOnce)
	for number := range chunks {
		want, is := x.Chunks[partName(number)]
		if !is || only != nil && !only(number) {
			continue
		}
		if known != nil && known.chunks[number] != nil && known.chunks[number].hash == want.Hash {
			l.chunks[number] = known.chunks[number]
			continue
		}
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			chunk, err := loadChunk(ctx, c, number, want)
			mu.Lock()
			defer mu.Unlock()
			l.chunks[number] = chunk
			if err != nil && fault == nil {
				fault = err
			}
		})
	}
	all.Wait()
	return l, fault
}

func loadChunk(ctx context.Context, c *consul.Client, number int, want part) (*Chunk, error) {
	key := chunkKey(c, number)
	entry, err := c.Get(ctx, key)
	if err != nil {
		return nil, err
	}
	if entry == nil {
		return nil, fmt.Errorf("%s: %w", key, ErrMismatch)
	}
	document, err := consul.Decode(entry.Value)
	if err == nil && hashOf(document) != want.Hash {
		err = ErrMismatch
	}
	var chunk *Chunk
	if err == nil {
		chunk, err = parseChunk(number, document)
	}
	if err == nil && len(chunk.entries) != want.Entries {
		err = ErrMismatch
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", key, err)
	}
	return chunk, nil
}

// Read reads a region's networks.
func Read(ctx context.Context, c *consul.Client) (l *List, err error) {
	for range mostRaces {
		var x *Index
		if x, _, err = current(ctx, c); err != nil {
			return nil, err
		}
		if x == nil {
			return &List{}, nil
		}
		if l, err = Load(ctx, c, x, l, nil); !errors.Is(err, ErrMismatch) {
			return l, err
		}
	}
	return nil, err
}

// current reads the index and its modify index; nil if there is none.
func current(ctx context.Context, c *consul.Client) (*Index, uint64, error) {
	key := CurrentKey(c)
	entry, err := c.Get(ctx, key)
	if err != nil || entry == nil {
		return nil, 0, err
	}
	x, err := ParseIndex(entry.Value)
	if err != nil {
		return nil, 0, fmt.Errorf("%s: %w", key, err)
	}
	return x, entry.ModifyIndex, nil
}
