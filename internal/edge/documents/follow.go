package documents

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/weir-edge/weir/internal/adminapi"
	"github.com/weir-edge/weir/pkg/region/consul"
)

// follow watches Consul until ctx ends.
func (k *Keeper[T]) follow(ctx context.Context, wg *sync.WaitGroup) {
	documents := k.Consul.Documents(k.Name)
	w := watch[T]{kind: &k.Kind, client: k.Consul, documents: documents, events: k.events, key: documents.CurrentKey(), lastGood: k.current.good}
	if k.PartLoader != nil {
		w.key = k.PartLoader.Key
	}
	wg.Go(func() { w.run(ctx) })
	if k.CanaryOf != "" {
		c := watch[T]{kind: &k.Kind, client: k.Consul, documents: documents, events: k.events, key: documents.CanaryKey(k.CanaryOf), canary: true}
		wg.Go(func() { c.run(ctx) })
	}
	wg.Go(func() { k.cache.run(ctx) })
	if k.Bootstrap != nil {
		wg.Go(func() { k.bootstrap(ctx) })
	}
}

// nextLook returns the time until something expires.
func (k *Keeper[T]) nextLook(now time.Time) time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	wait := time.Minute
	if k.canary.lives(now) {
		wait = min(wait, k.canary.left(now))
	}
	if k.temporary != nil {
		wait = min(wait, k.current.left(now))
	}
	return wait
}

// take processes an event.
func (k *Keeper[T]) take(ev event[T], now time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if ev.bootstrap != nil {
		if k.lacks() {
			k.base = ev.bootstrap
		}
		return
	}
	p := &k.current
	if ev.canary {
		p = &k.canary
	}
	if !p.note(ev, now) {
		return
	}
	if !ev.canary {
		k.takeCurrent(now)
	}
	standing := p.refused
	nothing := k.base == nil && k.temporary == nil && k.canary.good == nil
	if p.judge(nothing, ev.canary); p.refused != nil && p.refused != standing {
		count(k.Metrics.Rejected)
		k.Log.Error(k.What+" refused", "version", p.refused.Version, "canary", ev.canary, "error", p.resolution.fault)
	}
}

// takeCurrent processes what the current pointer led to.
func (k *Keeper[T]) takeCurrent(now time.Time) {
	found := &k.current.resolution
	p := found.pointer
	switch {
	case p == nil || found.untrusted: // a missing, malformed or unsigned pointer changes nothing
	case p.ExpiresAt == nil || !k.Temporary:
		if found.document != nil {
			k.base, k.temporary = found.document, nil
		}
	default:
		if found.document == nil && found.fault == nil && found.failure == nil {
			// Ended on purpose, or the clock of the node that set them is behind.
			k.Log.Info("temporary "+k.What+" are over", "version", p.Version, "expired_at", p.ExpiresAt.UTC())
		}
		k.temporary = found.document // the one before it has ended, too
		switch {
		case found.successor != nil:
			k.base = found.successor
		case p.Successor == nil && (found.document != nil || p.Expired(now)):
			k.base = nil
		}
	}
}

// choice is what should be active now by what was published, and what is known about that.
type choice[T any] struct {
	document *Document[T] // nil: nothing good is published, or it expired
	canary   bool
	next     *Document[T]      // what follows document when it expires
	left     time.Duration     // how long document remains active; 0 if it does not expire
	pointer  *consul.Pointer   // the one followed; nil if unknown
	known    bool              // the pointers have been resolved
	refused  *adminapi.Refusal // the latest
	lost     error             // why the source cannot be read
}

// choose returns what should be active now.
func (k *Keeper[T]) choose(now time.Time) choice[T] {
	if k.Consul == nil {
		return k.file.choice
	}
	if k.temporary != nil && k.current.left(now) <= 0 {
		k.temporary = nil
	}
	// Only documents that do not expire are kept on disk: a canary or a temporary document
	// must not outlive its end on a node that starts from the cache while Consul is
	// unreachable.
	if k.base != nil && k.base != k.kept && k.base.Source == adminapi.SourceConsul {
		k.kept = k.base
		k.cache.put(k.content(k.base))
	}
	c := choice[T]{document: k.base, pointer: k.current.resolution.pointer, known: k.current.known && (k.canary.known || k.CanaryOf == "")}
	if k.temporary != nil {
		c.document, c.next, c.left = k.temporary, k.base, k.current.left(now)
	}
	if k.canary.lives(now) {
		c.pointer = k.canary.resolution.pointer
		if good := k.canary.resolution.document; good != nil {
			c.document, c.canary = good, true
		}
	} else if k.canary.resolution.pointer != nil {
		k.canary.refused = nil // its time is over
	}
	if k.SignatureState != nil {
		k.SignatureState.Note(k.unsigned(now, c.document))
	}
	c.refused = newer(k.current.refused, k.canary.refused)
	c.lost = unanswered(k.current.queryErr, k.canary.queryErr, k.current.resolution.failure, k.canary.resolution.failure)
	if !errors.Is(c.lost, ErrNoAnswer) {
		k.ConsulState.Note(c.lost)
	}
	return c
}
