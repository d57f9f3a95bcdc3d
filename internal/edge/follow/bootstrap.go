package follow

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
		document, err := f.Bootstrap(ctx)
		if ctx.Err() != nil {
			return
		}
		var made *T
		if err == nil {
			made, err = f.Compile(document)
		}
		f.BootstrapState.Note(err)
		if err != nil {
			continue
		}
		pointer := consul.NewPointer(document, "", time.Time{})
		select {
		case <-ctx.Done():
		case f.events <- event[T]{bootstrap: &Document[T]{Pointer: pointer, Bytes: document, Made: made, Source: adminapi.SourceBootstrap}}:
		}
		return
	}
}

// lacks reports whether nothing is known: no document, and nothing from Consul.
func (f *Follower[T]) lacks() bool { return f.base == nil && !f.current.known }
