package edge

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/weir-edge/weir/pkg/limiter/rules"
	"github.com/weir-edge/weir/pkg/region"
)

// finding is what a pointer in Consul led to.
type finding struct {
	pointer *region.Pointer // nil if it is missing or malformed
	good    *published      // nil if it leads to no good document
	set     *rules.Set      // good compiled; nil if it is the one found before
	fault   error           // why there is none, if pointer or document is to blame
	failure error           // why there is none, if Consul could not be asked
}

// event is what a pointerWatch tells the follower: how asking went, or a finding.
type event struct {
	canary  bool
	asked   error
	finding *finding
}

// pointerWatch follows one pointer in Consul and finds the document that it names.
type pointerWatch struct {
	consul    *region.Consul
	documents *region.Documents
	key       string
	canary    bool
	tell      func(context.Context, event)
	good      *published // found last
}

// errNoPointer says that nothing is published, or no longer.
var errNoPointer = errors.New("is missing")

// run follows the pointer until ctx ends. What is being looked for when the pointer
// changes is given up.
func (w *pointerWatch) run(ctx context.Context) {
	var looking sync.WaitGroup
	stop := func() {}
	w.consul.Watch(ctx, w.key,
		func(err error) { w.tell(ctx, event{canary: w.canary, asked: err}) },
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

// resolve tells what an entry leads to, and looks again where that may change by
// itself: a version that is missing may arrive, and so may Consul.
func (w *pointerWatch) resolve(ctx context.Context, entry *region.Entry) {
	for failures := 0; ; failures++ {
		f, again := w.find(ctx, entry)
		if ctx.Err() != nil {
			return
		}
		w.tell(ctx, event{canary: w.canary, finding: &f})
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

func (w *pointerWatch) find(ctx context.Context, entry *region.Entry) (f finding, again bool) {
	if entry == nil {
		if !w.canary {
			f.fault = fmt.Errorf("%s %w; apply the rules again", w.key, errNoPointer)
		}
		return f, false
	}
	p, err := region.ParsePointer(entry.Value)
	if err == nil && w.canary && p.ExpiresAt == nil {
		err = &region.FieldError{Field: "expires_at", Msg: "must be set: a canary that is forgotten must end"}
	}
	if err != nil {
		f.fault = fmt.Errorf("%s: %w; apply the rules again", w.key, err)
		return f, false
	}
	f.pointer = &p
	if w.canary && p.Expired(time.Now()) {
		return f, false
	}
	if w.good != nil && w.good.pointer.SHA256 == p.SHA256 { // the same document, applied again
		w.good = &published{pointer: p, document: w.good.document, source: fromConsul}
		f.good = w.good
		return f, false
	}
	document, err := w.documents.Load(ctx, p)
	if errors.Is(err, region.ErrMissing) || errors.Is(err, region.ErrCorrupt) {
		f.fault = err
		return f, true
	}
	if err != nil {
		f.failure = err
		return f, true
	}
	if f.set, err = rules.Load(document); err != nil {
		f.fault = err
		return f, false
	}
	w.good = &published{pointer: p, document: document, source: fromConsul}
	f.good = w.good
	return f, false
}
