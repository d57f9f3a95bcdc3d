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
func (k *Keeper[T]) bootstrap(ctx context.Context) {
	for failures := 0; consul.Pause(ctx, consul.Backoff(failures, rand.Float64())) == nil; failures++ {
		k.mu.Lock()
		done, lost := !k.lacks(), k.current.queryErr
		k.mu.Unlock()
		if done {
			return
		}
		if lost == nil || errors.Is(lost, ErrNoAnswer) {
			continue
		}
		d, err := k.fetch(ctx)
		if ctx.Err() != nil {
			return
		}
		k.BootstrapState.Note(err)
		if err != nil {
			continue
		}
		select {
		case <-ctx.Done():
		case k.events <- event[T]{bootstrap: d}:
		}
		return
	}
}

// fetch returns a valid document, signed if it must be.
func (k *Keeper[T]) fetch(ctx context.Context) (*Document[T], error) {
	document, signatures, err := k.Bootstrap(ctx)
	if err != nil {
		return nil, err
	}
	made, err := k.Compile(document)
	if err != nil {
		return nil, err
	}
	d := &Document[T]{Pointer: consul.NewPointer(document, "", time.Time{}), Bytes: document, Compiled: made, Source: adminapi.SourceBootstrap, Signatures: signatures}
	return d, k.accept(d)
}

// lacks reports whether nothing is known: no document, and nothing from Consul.
func (k *Keeper[T]) lacks() bool { return k.base == nil && !k.current.known }
