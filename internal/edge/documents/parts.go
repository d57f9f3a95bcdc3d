package documents

import (
	"context"

	"github.com/weir-edge/weir/internal/adminapi"
	"github.com/weir-edge/weir/internal/disk"
	"github.com/weir-edge/weir/pkg/region/consul"
)

// PartLoader reads a document that is not one value in Consul.
type PartLoader[T any] struct {
	Key string // whose changes it follows
	// Load reads the document that an entry names; nil: the key is missing. known is the last good
	// one, which may be nil. It returns neither a document nor an error if nothing was ever published.
	Load func(ctx context.Context, entry *consul.Entry, known *Document[T]) (*Document[T], error)
	// Torn is its error while the document is being changed. It is normal once.
	Torn error

	// Encode and Decode are the form on disk, of at most MaxCache bytes.
	Encode   func(*Document[T]) ([]byte, error)
	Decode   func([]byte) (*Document[T], error)
	MaxCache int64
}

// resolveOnce is watch.resolveOnce for such a document.
func (p *PartLoader[T]) resolveOnce(ctx context.Context, entry *consul.Entry, known *Document[T]) (f resolution[T]) {
	if f.document, f.failure = p.Load(ctx, entry, known); f.document != nil {
		f.pointer = &f.document.Pointer
	}
	return f
}

// content is a document as it should be on disk.
func (k *Keeper[T]) content(d *Document[T]) *content {
	c := &Cached{d.Pointer, d.Bytes, d.Signatures}
	encode := func() ([]byte, error) { return encodeCache(k.Owner, c) }
	if k.PartLoader != nil {
		encode = func() ([]byte, error) { return k.PartLoader.Encode(d) }
	}
	return &content{c.id(), encode}
}

// readCache activates the document on disk until Consul answers.
func (k *Keeper[T]) readCache() error {
	d, err := k.cached()
	if err != nil {
		return err
	}
	k.cache.written = k.content(d).id
	d.Source = adminapi.SourceCache
	if err := k.accept(d); err != nil {
		return err
	}
	k.base, k.current.good = d, d
	return nil
}

func (k *Keeper[T]) cached() (d *Document[T], err error) {
	if k.PartLoader != nil {
		data, err := disk.Read(k.Cache, k.PartLoader.MaxCache)
		if err != nil {
			return nil, err
		}
		return k.PartLoader.Decode(data)
	}
	c, err := ReadCache(k.Cache, k.Owner)
	if err != nil {
		return nil, err
	}
	d = &Document[T]{Pointer: c.Pointer, Bytes: c.Document, Signatures: c.Signatures}
	d.Compiled, err = k.Compile(c.Document)
	return d, err
}
