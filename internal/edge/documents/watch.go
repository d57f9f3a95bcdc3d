package documents

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"sync"
	"time"

	"github.com/weir-edge/weir/internal/adminapi"
	"github.com/weir-edge/weir/pkg/field"
	"github.com/weir-edge/weir/pkg/region/consul"
	"github.com/weir-edge/weir/pkg/sign"
)

// resolution is the result of following a pointer in Consul. T is the compiled form of its
// document.
type resolution[T any] struct {
	pointer   *consul.Pointer // nil if it is missing or malformed
	document  *Document[T]    // nil if it names no good document, or has expired
	successor *Document[T]    // what follows it; nil if nothing does, or it is not good
	fault     error           // why there is none, if pointer or document is invalid
	failure   error           // why there is none, if Consul did not answer
	// untrusted: the pointer's document must be signed and is not, so nothing that it says
	// counts, such as when it expires.
	untrusted bool
}

// event is what a watch sends its follower: the outcome of a request to Consul, or a finding;
// or the document that bootstrap fetched.
type event[T any] struct {
	canary     bool
	queryErr   error
	resolution *resolution[T]
	bootstrap  *Document[T]
}

// watch follows one pointer in Consul and finds the documents that it names.
type watch[T any] struct {
	kind          *Kind[T]
	client        *consul.Client
	documents     *consul.Documents
	key           string
	canary        bool // it must expire
	events        chan<- event[T]
	lastGood      *Document[T] // the last one found
	lastSuccessor *Document[T] // the last one found
}

// errNoPointer says that nothing is published, or no longer.
var errNoPointer = errors.New("is missing")

// run follows the pointer until ctx ends. When the pointer changes, it abandons what the
// old one named.
func (w *watch[T]) run(ctx context.Context) {
	var looking sync.WaitGroup
	stop := func() {}
	w.client.Watch(ctx, w.key,
		func(err error) { w.send(ctx, event[T]{canary: w.canary, queryErr: err}) },
		func(entry *consul.Entry) {
			stop()
			looking.Wait()
			var look context.Context
			look, stop = context.WithCancel(ctx)
			looking.Go(func() { w.resolve(look, entry) })
		})
	stop()
	looking.Wait()
}

// send sends an event to the follower.
func (w *watch[T]) send(ctx context.Context, ev event[T]) {
	select {
	case w.events <- ev:
	case <-ctx.Done():
	}
}

// resolve sends what an entry leads to, and retries where that may change without a new
// pointer: a missing version may arrive, and Consul may answer again.
func (w *watch[T]) resolve(ctx context.Context, entry *consul.Entry) {
	for failures := 0; ; failures++ {
		f, again := w.resolveOnce(ctx, entry)
		if ctx.Err() != nil {
			return
		}
		if p := w.kind.PartLoader; failures > 0 || p == nil || !errors.Is(f.failure, p.Torn) {
			w.send(ctx, event[T]{canary: w.canary, resolution: &f})
		}
		if !again {
			if !w.signaturesChanged(ctx, f.document) {
				return
			}
			failures = -1
			continue
		}
		if consul.Pause(ctx, consul.Backoff(failures, rand.Float64())) != nil {
			return
		}
	}
}

// signaturesChanged waits until a document has other signatures than those that it was found with, or is
// no longer signed by a trusted key: either may change without a new pointer, and the copy on
// disk must be signed by keys that are trusted when it is needed. It returns false if that does
// not matter, or if ctx ends.
func (w *watch[T]) signaturesChanged(ctx context.Context, d *Document[T]) bool {
	if w.kind.Verify == nil || d == nil {
		return false
	}
	for consul.Pause(ctx, w.kind.Verify.every()) == nil {
		now, err := w.signatures(ctx, d.Pointer)
		switch {
		case ctx.Err() != nil || (w.canary || w.kind.Temporary) && d.Pointer.Expired(time.Now()):
			return false
		case sign.IsFault(err), err == nil && !reflect.DeepEqual(now, d.Signatures):
			return true
		}
	}
	return false
}

// resolveOnce returns what an entry leads to now, and whether to look again: it reads the document,
// unless that is the last good one, verifies and compiles it.
func (w *watch[T]) resolveOnce(ctx context.Context, entry *consul.Entry) (f resolution[T], again bool) {
	if w.kind.PartLoader != nil {
		if f = w.kind.PartLoader.resolveOnce(ctx, entry, w.lastGood); f.document != nil {
			w.lastGood = f.document
		}
		return f, f.failure != nil
	}
	if entry == nil {
		if !w.canary {
			f.fault = fmt.Errorf("%s %w; apply the document again", w.key, errNoPointer)
		}
		return f, false
	}
	p, err := consul.ParsePointer(entry.Value)
	if err == nil && w.canary && p.ExpiresAt == nil {
		err = &field.Error{Path: "expires_at", Msg: "must be set: a canary that is forgotten must end"}
	}
	if err != nil {
		f.fault = fmt.Errorf("%s: %w; apply the document again", w.key, err)
		return f, false
	}
	f.pointer = &p
	if !p.Expired(time.Now()) || !w.canary && !w.kind.Temporary {
		f.document, again = w.loadDocument(ctx, p, w.lastGood, &f)
		f.untrusted = w.kind.Verify.requires() && sign.IsFault(f.fault)
	} else if !w.canary && p.Successor == nil && w.kind.Verify.requires() { // returns to the configuration
		if _, err := w.signatures(ctx, p); sign.IsFault(err) {
			f.fault, f.untrusted, again = err, true, true
		} else if err != nil {
			f.failure, f.untrusted, again = err, true, true
		}
	}
	if f.document != nil {
		w.lastGood = f.document
	}
	if p.Successor != nil && w.kind.Temporary { // in advance: Consul may be unreachable when it is needed
		next := consul.Pointer{Version: p.Successor.Version, SHA256: p.Successor.SHA256, AppliedAt: p.AppliedAt, AppliedBy: p.AppliedBy}
		var more bool
		f.successor, more = w.loadDocument(ctx, next, w.lastSuccessor, &f)
		again = again || more
	}
	if f.successor != nil {
		w.lastSuccessor = f.successor
	}
	return f, again
}

// loadDocument returns the document that p names, and records in f why there is none. known is a
// document that was good, and is not loaded again.
func (w *watch[T]) loadDocument(ctx context.Context, p consul.Pointer, known *Document[T], f *resolution[T]) (good *Document[T], again bool) {
	signatures, err := w.signatures(ctx, p)
	unsigned := err
	switch {
	case sign.IsFault(err):
		if again = true; w.kind.Verify.Require { // a signature may still arrive
			f.fault = err
			return nil, again
		}
	case err != nil:
		f.failure = err
		return nil, true
	}
	good = &Document[T]{Pointer: p, Signatures: signatures, Unsigned: unsigned, Source: adminapi.SourceConsul}
	if known != nil && known.Pointer.SHA256 == p.SHA256 { // the same document, applied again
		good.Bytes, good.Compiled = known.Bytes, known.Compiled
		return good, again
	}
	good.Bytes, err = w.documents.Load(ctx, p)
	if errors.Is(err, consul.ErrMissing) || errors.Is(err, consul.ErrCorrupt) {
		f.fault = err
		return nil, true
	}
	if err != nil {
		f.failure = err
		return nil, true
	}
	if good.Compiled, err = w.kind.Compile(good.Bytes); err != nil {
		f.fault = err
		return nil, false
	}
	return good, again
}

// signatures returns the signatures of the document that p names, which are valid unless
// the error says otherwise.
func (w *watch[T]) signatures(ctx context.Context, p consul.Pointer) ([]sign.Signature, error) {
	if w.kind.Verify == nil {
		return nil, nil
	}
	if !w.canary && !w.kind.Temporary { // nothing ends it, so a temporary signature is not enough
		p.ExpiresAt = nil
	}
	list, err := w.documents.Signatures(ctx, p.Version)
	if err != nil {
		return nil, err
	}
	return list, w.kind.Verify.verify(w.kind.Name, p, list)
}
