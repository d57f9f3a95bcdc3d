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

// CurrentKey is the key of the pointer to the index.
func CurrentKey(c *consul.Client) string { return c.Key(Kind, "current") }

func chunkKey(c *consul.Client, number int, p part) string {
	return c.Key(Kind, "chunks", partName(number)+"."+p.Name)
}

// atOnce bounds the concurrent requests for chunks.
const atOnce = 8

// Load reads the chunks that an index names, except those in known. If only is set, it reads
// only the chunks that only selects.
func Load(ctx context.Context, c *consul.Client, x *Index, known *List, only func(number int) bool) (*List, error) {
	l := &List{Index: x}
	var jobs []func() error
	for number := range chunks {
		want, is := x.Chunks[partName(number)]
		if !is || only != nil && !only(number) {
			continue
		}
		if known != nil && known.chunks[number] != nil && known.chunks[number].hash == want.Hash {
			l.chunks[number] = known.chunks[number]
			continue
		}
		jobs = append(jobs, func() (err error) {
			l.chunks[number], err = loadChunk(ctx, c, number, want)
			return err
		})
	}
	return l, together(jobs)
}

// together does some jobs at once, and returns an error of one.
func together(jobs []func() error) (fault error) {
	var mu sync.Mutex
	var all sync.WaitGroup
	slots := make(chan struct{}, atOnce)
	for _, job := range jobs {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			if err := job(); err != nil {
				mu.Lock()
				defer mu.Unlock()
				fault = err
			}
		})
	}
	all.Wait()
	return fault
}

func loadChunk(ctx context.Context, c *consul.Client, number int, want part) (*Chunk, error) {
	key := chunkKey(c, number, want)
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
		if x, _, err = current(ctx, c); err == nil && x == nil {
			return &List{}, nil
		}
		if err == nil {
			l, err = Load(ctx, c, x, l, nil)
		}
		if !errors.Is(err, ErrMismatch) {
			return l, err
		}
	}
	return nil, err
}

// current reads the index and the modify index of its pointer; nil before the first. A lost pointer
// is an error: an edit would forget the other networks.
func current(ctx context.Context, c *consul.Client) (*Index, uint64, error) {
	docs := c.Documents(Kind)
	p, index, err := docs.Current(ctx)
	if p == nil && err == nil {
		if gone := docs.Gone(ctx); gone != nil {
			p, index, err = docs.Current(ctx)
			if p == nil && err == nil {
				err = gone
			}
		}
	}
	if err != nil || p == nil {
		return nil, 0, err
	}
	x, err := LoadIndex(ctx, c, *p)
	return x, index, err
}
