package documents

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/weir-edge/weir/internal/adminapi"
	"github.com/weir-edge/weir/pkg/region/consul"
)

// bootstrap fetches a document for a node that has none while Consul is unreachable, and
// retries until it has one or Consul answers.
func (f *Follower[T]) bootstrap(ctx context.Context) {
	for failures := 0; ; failures++ {
		select {
		case <-ctx.Done():
			return
		case <-time.After(consul.Backoff(failures, rand.Float64())):
		}
		f.mu.Lock()
		done, lost := !f.lacks(), f.current.asked
		f.mu.Unlock()
		if done {
			return
		}
		if lost == nil || errors.Is(lost, ErrNoAnswer) {
			continue
		}
		d, err := f.fetch(ctx)
		if ctx.Err() != nil {
			return
		}
		f.BootstrapState.Note(err)
		if err != nil {
			continue
		}
		select {
		case <-ctx.Done():
		case f.events <- event[T]{bootstrap: d}:
		}
		return
	}
}

// fetch returns a valid document, signed if it must be.
func (f *Follower[T]) fetch(ctx context.Context) (*Document[T], error) {
	document, signatures, err := f.Bootstrap(ctx)
	if err != nil {
		return nil, err
	}
	made, err := f.Compile(document)
	if err != nil {
		return nil, err
	}
	d := &Document[T]{Pointer: consul.NewPointer(document, "", time.Time{}), Bytes: document, Made: made, Source: adminapi.SourceBootstrap, Signatures: signatures}
	return d, f.accept(d)
}

// lacks reports whether nothing is known: no document, and nothing from Consul.
func (f *Follower[T]) lacks() bool { return f.base == nil && !f.current.known }
