package edge

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/weir-edge/weir/pkg/region"
)

// finding is what a pointer in Consul led to. T is what its document is compiled to.
type finding[T any] struct {
	pointer *region.Pointer // nil if it is missing or malformed
	good    *published      // nil if it leads to no good document, or its time is over
	made    *T              // good compiled; nil if it is the one found before
	then    *published      // what follows it; nil if nothing does, or it is not good
	fault   error           // why there is none, if pointer or document is to blame
	failure error           // why there is none, if Consul could not be asked
}

// event is what a pointerWatch tells its follower: how asking went, or a finding.
type event[T any] struct {
	canary  bool
	asked   error
	finding *finding[T]
}

// pointerWatch follows one pointer in Consul and finds the documents that it names.
type pointerWatch[T any] struct {
	consul    *region.Consul
	documents *region.Documents
	what      string // the documents are: rules
	key       string
	canary    bool // it must end
	temporary bool // it may end, and name what follows
	events    chan<- event[T]
	compile   func([]byte) (*T, error)
	good      *published // found last
	then      *published // likewise
}

// errNoPointer says that nothing is published, or no longer.
var errNoPointer = errors.New("is missing")

// run follows the pointer until ctx ends. What is being looked for when the pointer
// changes is given up.
func (w *pointerWatch[T]) run(ctx context.Context) {
	var looking sync.WaitGroup
	stop := func() {}
	w.consul.Watch(ctx, w.key,
		func(err error) { w.tell(ctx, event[T]{canary: w.canary, asked: err}) },
		func(entry *region.Entry) {
			stop()
			looking.Wait()
			var look context.Context
			look, stop = context.WithCancel(ctx)
			looking.Go(func() { w.resolve(look, entry) })
		})
	stop()
	looking.Wait()
}

// tell hands an event to the follower.
func (w *pointerWatch[T]) tell(ctx context.Context, ev event[T]) {
	select {
	case w.events <- ev:
	case <-ctx.Done():
	}
}

// resolve tells what an entry leads to, and looks again where that may change by
// itself: a version that is missing may arrive, and so may Consul.
func (w *pointerWatch[T]) resolve(ctx context.Context, entry *region.Entry) {
	for failures := 0; ; failures++ {
		f, again := w.find(ctx, entry)
		if ctx.Err() != nil {
			return
		}
		w.tell(ctx, event[T]{canary: w.canary, finding: &f})
		if !again {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(region.Backoff(failures, rand.Float64())):
		}
	}
}

func (w *pointerWatch[T]) find(ctx context.Context, entry *region.Entry) (f finding[T], again bool) {
	if entry == nil {
		if !w.canary {
			f.fault = fmt.Errorf("%s %w; apply the %s again", w.key, errNoPointer, w.what)
		}
		return f, false
	}
	p, err := region.ParsePointer(entry.Value)
	if err == nil && w.canary && p.ExpiresAt == nil {
		err = &region.FieldError{Field: "expires_at", Msg: "must be set: a canary that is forgotten must end"}
	}
	if err != nil {
		f.fault = fmt.Errorf("%s: %w; apply the %s again", w.key, err, w.what)
		return f, false
	}
	f.pointer = &p
	if !p.Expired(time.Now()) || !w.canary && !w.temporary {
		f.good, f.made, again = w.load(ctx, p, w.good, &f)
	}
	if f.good != nil {
		w.good = f.good
	}
	if p.Then != nil && w.temporary { // ahead: Consul may be away when it is needed
		next := region.Pointer{Version: p.Then.Version, SHA256: p.Then.SHA256, AppliedAt: p.AppliedAt, AppliedBy: p.AppliedBy}
		var more bool
		f.then, _, more = w.load(ctx, next, w.then, &f)
		again = again || more
	}
	if f.then != nil {
		w.then = f.then
	}
	return f, again
}

// load returns the document that p names, and notes in f why there is none. known is
// one that was good, and is not loaded again.
func (w *pointerWatch[T]) load(ctx context.Context, p region.Pointer, known *published, f *finding[T]) (good *published, made *T, again bool) {
	if known != nil && known.pointer.SHA256 == p.SHA256 { // the same document, applied again
		return &published{pointer: p, document: known.document, source: fromConsul}, nil, false
	}
	document, err := w.documents.Load(ctx, p)
	if errors.Is(err, region.ErrMissing) || errors.Is(err, region.ErrCorrupt) {
		f.fault = err
		return nil, nil, true
	}
	if err != nil {
		f.failure = err
		return nil, nil, true
	}
	if made, err = w.compile(document); err != nil {
		f.fault = err
		return nil, nil, false
	}
	return &published{pointer: p, document: document, source: fromConsul}, made, false
}
