// Package documents keeps a node on the document that its region's Consul publishes: it
// watches the pointers, fetches and verifies what they name, compiles it, keeps the last
// good one on disk, and reports what should be active. Each kind's keeper activates its
// documents.
package documents

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/weir-edge/weir/internal/adminapi"
	"github.com/weir-edge/weir/pkg/region/consul"
	"github.com/weir-edge/weir/pkg/sign"
)

// Kind is a kind of document.
type Kind[T any] struct {
	Name    string // its folder in Consul, such as rules
	What    string // its name in a sentence: rules, shedder settings
	Compile func(document []byte) (*T, error)
	Faults  func(error) []string // the faults in an error of Compile, one by one
	// CanaryOf is the PoP whose canary is followed in place of the current document.
	CanaryOf string
	// Temporary: the current pointer may expire, and names what follows.
	Temporary bool
	Verify    *Verify // nil: signatures do not matter
}

// Config is how a node follows a kind.
type Config[T any] struct {
	Kind[T]
	Log *slog.Logger
	// Consul to follow. Without it nothing is ever published, and the other fields are
	// unused.
	Consul *consul.Client
	Cache  string // the file
	Owner  Owner
	// Bootstrap fetches a document for a node that starts without Consul and without a
	// cached one. Nil: such a node waits for Consul.
	Bootstrap func(context.Context) ([]byte, []sign.Signature, error)
	// Called to count events; each may be nil.
	Rejected, CacheFailed func()
}

// Document is a good document that Consul names, or named before this node started.
type Document[T any] struct {
	Pointer consul.Pointer
	Bytes   []byte
	Made    *T     // the result of Compile
	Source  string // adminapi.SourceConsul, SourceCache or SourceBootstrap
	// Signatures are those read with the document, and Unsigned is why none is valid. Both
	// are nil if signatures do not matter.
	Signatures []sign.Signature
	Unsigned   error
}

// Choice is what should be active now, and what is known about it.
type Choice[T any] struct {
	Document *Document[T] // nil: nothing good is published, or it expired
	Canary   bool
	Next     *Document[T]      // what follows Document when it expires
	Left     time.Duration     // how long Document remains active; 0 if it does not expire
	Pointer  *consul.Pointer   // the one followed; nil if unknown
	Known    bool              // the pointers have been resolved
	Refused  *adminapi.Refusal // the latest
	Lost     error             // why Consul does not answer
}

// Follower follows one kind. Its methods may be called from any goroutine.
type Follower[T any] struct {
	Config[T]
	ConsulState, CacheState *Condition // nil without Consul
	BootstrapState          *Condition // nil without Bootstrap
	SignatureState          *Condition // nil without Verify

	cache  *cache
	events chan event[T]

	mu        sync.Mutex
	current   pointer[T]
	canary    pointer[T]
	base      *Document[T] // the current one that does not expire
	temporary *Document[T] // last given to the cache
	kept      *Document[T] // given to the cache
}

// New returns a follower that starts from the cache. It does not connect yet.
func New[T any](c Config[T]) *Follower[T] {
	f := &Follower[T]{Config: c}
	nothing := func() {}
	if f.Rejected == nil {
		f.Rejected = nothing
	}
	if f.CacheFailed == nil {
		f.CacheFailed = nothing
	}
	if f.Consul == nil {
		return f
	}
	f.events = make(chan event[T])
	f.current.asked = ErrNoAnswer
	if f.CanaryOf != "" {
		f.canary.asked = ErrNoAnswer
	}
	f.ConsulState = NewCondition(f.Log, c.What+" cannot be read from consul; the node keeps what it has", c.What+" can be read from consul again", ErrNoAnswer)
	f.CacheState = NewCondition(f.Log, c.What+" cannot be cached; a restart while consul is unreachable has none", c.What+" are cached again", nil)
	if f.Bootstrap != nil {
		f.BootstrapState = NewCondition(f.Log, c.What+" cannot be bootstrapped; the node retries until consul answers", c.What+" are bootstrapped", nil)
	}
	if f.Verify != nil {
		f.SignatureState = NewCondition(f.Log, c.What+" have no valid signature", c.What+" have a valid signature again", nil)
	}
	f.cache = newCache(c.Cache, c.Owner, f.CacheState, f.CacheFailed)
	if err := f.readCache(); err != nil {
		f.CacheFailed()
		f.Log.Error("cached "+c.What+" not used", "error", err)
	}
	err := f.cache.prepare()
	if err != nil {
		f.CacheFailed()
	}
	f.CacheState.Note(err)
	return f
}

func (f *Follower[T]) readCache() error {
	cached, err := f.cache.read()
	if err != nil || cached == nil {
		return err
	}
	made, err := f.Compile(cached.Document)
	if err != nil {
		return err
	}
	d := &Document[T]{Pointer: cached.Pointer, Bytes: cached.Document, Made: made, Source: adminapi.SourceCache, Signatures: cached.Signatures}
	if err := f.accept(d); err != nil {
		return err
	}
	f.base, f.current.good = d, d
	return nil
}

// Run follows until ctx ends. It calls settle at the start and whenever Choose may change:
// after news, after a signal on wake, when the active document expires, and when settle
// wants to check again. It checks at least once a minute, because clocks may be adjusted.
func (f *Follower[T]) Run(ctx context.Context, wake <-chan struct{}, settle func(now time.Time) (again time.Duration)) {
	var wg sync.WaitGroup
	defer wg.Wait()
	if f.Consul != nil {
		documents := f.Consul.Documents(f.Name)
		w := watch[T]{kind: &f.Kind, client: f.Consul, documents: documents, events: f.events, key: documents.CurrentKey(), good: f.current.good}
		wg.Go(func() { w.run(ctx) })
		if f.CanaryOf != "" {
			c := watch[T]{kind: &f.Kind, client: f.Consul, documents: documents, events: f.events, key: documents.CanaryKey(f.CanaryOf), canary: true}
			wg.Go(func() { c.run(ctx) })
		}
		wg.Go(func() { f.cache.run(ctx) })
		if f.Bootstrap != nil {
			wg.Go(func() { f.bootstrap(ctx) })
		}
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case ev := <-f.events:
			f.take(ev, time.Now())
		case <-wake:
		case <-timer.C:
		}
		now := time.Now()
		timer.Reset(max(0, min(time.Minute, settle(now), f.nextLook(now))))
	}
}

// nextLook returns the time until something expires.
func (f *Follower[T]) nextLook(now time.Time) time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	wait := time.Minute
	if f.canary.lives(now) {
		wait = min(wait, f.canary.left(now))
	}
	if f.temporary != nil {
		wait = min(wait, f.current.left(now))
	}
	return wait
}

// take processes an event.
func (f *Follower[T]) take(ev event[T], now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if ev.bootstrap != nil {
		if f.lacks() {
			f.base = ev.bootstrap
		}
		return
	}
	p := &f.current
	if ev.canary {
		p = &f.canary
	}
	if !p.note(ev, now) {
		return
	}
	if !ev.canary {
		f.takeCurrent(now)
	}
	standing := p.refused
	nothing := f.base == nil && f.temporary == nil && f.canary.good == nil
	if p.judge(nothing, ev.canary, f.Faults); p.refused != nil && p.refused != standing {
		f.Rejected()
		f.Log.Error(f.What+" refused", "version", p.refused.Version, "canary", ev.canary, "error", p.finding.fault)
	}
}

// takeCurrent processes what the current pointer led to.
func (f *Follower[T]) takeCurrent(now time.Time) {
	found := &f.current.finding
	p := found.pointer
	switch {
	case p == nil || found.untrusted: // a missing, malformed or unsigned pointer changes nothing
	case p.ExpiresAt == nil || !f.Temporary:
		if found.good != nil {
			f.base, f.temporary = found.good, nil
		}
	default:
		if found.good == nil && found.fault == nil && found.failure == nil {
			// Ended on purpose, or the clock of the node that set them is behind.
			f.Log.Info("temporary "+f.What+" are over", "version", p.Version, "expired_at", p.ExpiresAt.UTC())
		}
		f.temporary = found.good // the one before it has ended, too
		switch {
		case found.then != nil:
			f.base = found.then
		case p.Then == nil && (found.good != nil || p.Expired(now)):
			f.base = nil
		}
	}
}

// Choose returns what should be active now.
func (f *Follower[T]) Choose(now time.Time) Choice[T] {
	if f.Consul == nil {
		return Choice[T]{}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.temporary != nil && f.current.left(now) <= 0 {
		f.temporary = nil
	}
	// Only documents that do not expire are kept on disk: a canary or a temporary document
	// must not outlive its end on a node that starts from the cache while Consul is
	// unreachable.
	if f.base != nil && f.base != f.kept && f.base.Source == adminapi.SourceConsul {
		f.kept = f.base
		f.cache.put(&Cached{f.base.Pointer, f.base.Bytes, f.base.Signatures})
	}
	c := Choice[T]{Document: f.base, Pointer: f.current.finding.pointer, Known: f.current.known && (f.canary.known || f.CanaryOf == "")}
	if f.temporary != nil {
		c.Document, c.Next, c.Left = f.temporary, f.base, f.current.left(now)
	}
	if f.canary.lives(now) {
		c.Pointer = f.canary.finding.pointer
		if good := f.canary.finding.good; good != nil {
			c.Document, c.Canary = good, true
		}
	} else if f.canary.finding.pointer != nil {
		f.canary.refused = nil // its time is over
	}
	if f.SignatureState != nil {
		f.SignatureState.Note(f.unsigned(now, c.Document))
	}
	c.Refused = newer(f.current.refused, f.canary.refused)
	c.Lost = unanswered(f.current.asked, f.canary.asked, f.current.finding.failure, f.canary.finding.failure)
	if !errors.Is(c.Lost, ErrNoAnswer) {
		f.ConsulState.Note(c.Lost)
	}
	return c
}
