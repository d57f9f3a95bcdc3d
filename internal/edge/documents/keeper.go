// Package documents keeps the documents of a node active: its rules, the shedder's settings,
// the behavior policy and client lists. A Keeper reads a file, or follows what the
// region's Consul publishes: it watches the pointers, fetches and verifies what they name,
// compiles it, keeps the last good one on disk, and activates what should be active.
package documents

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weir-edge/weir/internal/adminapi"
	"github.com/weir-edge/weir/internal/metric"
	"github.com/weir-edge/weir/pkg/region/consul"
	"github.com/weir-edge/weir/pkg/sign"
)

// Kind is a kind of document.
type Kind[T any] struct {
	Name    string // its folder in Consul, such as rules
	What    string // its name in a sentence: rules, shedder settings
	Compile func(document []byte) (*T, error)
	// CanaryOf is the PoP whose canary is followed in place of the current document.
	CanaryOf string
	// Temporary: the current pointer may expire, and names what follows.
	Temporary bool
	// Optional: while nothing was ever published, having no document is correct.
	Optional bool
	Verify   *Verify // nil: signatures do not matter
	// PartLoader, if not nil, reads a document that is not one value in Consul.
	PartLoader *PartLoader[T]
}

// Config is how a node keeps a kind active.
type Config[T any] struct {
	Kind[T]
	Node
	// Activate puts a document in force. After an error the previous one stays.
	Activate func(d *Document[T], canary bool) error
	// Fallback is active while nothing else is; nil: nothing is.
	Fallback *Document[T]
	// Published, if not nil, is called with each state and the one before it.
	Published func(before, now *State[T])
	Metrics   Metrics

	// Read reads the document of a node that does not follow Consul; Source says from where.
	Read   func() ([]byte, error)
	Source string

	Cache string // the file that keeps what Consul published
	// Bootstrap fetches a document for a node that starts without Consul and without a
	// cached one. Nil: such a node waits for Consul.
	Bootstrap func(context.Context) ([]byte, []sign.Signature, error)
}

// Node is what all kinds of a node have in common.
type Node struct {
	Log      *slog.Logger
	Changed  func()               // the node's registration should be updated; may be nil
	Unsigned *prometheus.GaugeVec // by kind; may be nil
	// Consul to follow. Without it nothing is ever published.
	Consul *consul.Client
	Owner  Owner // of the caches
}

// Metrics show how a kind fares; each may be nil.
type Metrics struct {
	Rejected, CacheErrors prometheus.Counter
	SourceUp              prometheus.Gauge
}

type Document[T any] struct {
	Pointer  consul.Pointer // by which Consul named it; otherwise only its version
	Bytes    []byte
	Compiled *T // the result of Compile
	Source   string
	// Signatures are those read with the document, and Unsigned is why none is valid. Both
	// are nil if signatures do not matter.
	Signatures []sign.Signature
	Unsigned   error
}

// Local returns a document that Consul did not name.
func Local[T any](version string, made *T, source string) *Document[T] {
	return &Document[T]{Pointer: consul.Pointer{Version: version}, Compiled: made, Source: source}
}

// State is what is active, and what is known about it.
type State[T any] struct {
	Active  *Document[T] // nil until there is one
	Since   time.Time
	Canary  bool
	Pointer *consul.Pointer   // the one followed; nil if unknown, and without Consul
	Refused *adminapi.Refusal // the latest
	Stale   bool              // Active is not what was published, or that is unknown
}

// Version returns the active version, or adminapi.NoVersion.
func (s *State[T]) Version() string {
	if s.Active == nil {
		return adminapi.NoVersion
	}
	return s.Active.Pointer.Version
}

// Source returns where the active document came from, or adminapi.NoVersion.
func (s *State[T]) Source() string {
	if s.Active == nil {
		return adminapi.NoVersion
	}
	return cmp.Or(s.Active.Source, adminapi.NoVersion)
}

// Keeper keeps one kind active. Its methods may be called from any goroutine.
type Keeper[T any] struct {
	Config[T]
	ConsulState, CacheState *Condition // nil without Consul
	BootstrapState          *Condition // nil without Bootstrap
	SignatureState          *Condition // nil without Verify

	state  atomic.Pointer[State[T]]
	wake   chan struct{} // holds one signal: the next expiry has changed
	cache  *cache
	events chan event[T]

	mu        sync.Mutex
	file      file[T]
	current   pointer[T]
	canary    pointer[T]
	base      *Document[T] // the current one that does not expire
	temporary *Document[T]
	kept      *Document[T] // given to the cache
	override  *Document[T] // set on this node only
	ends      time.Time    // of override, monotonic
}

// New returns a keeper, which has activated what it read from the file or found in the cache. It
// does not connect yet.
func New[T any](c Config[T]) (*Keeper[T], error) {
	k := &Keeper[T]{Config: c, wake: make(chan struct{}, 1)}
	k.state.Store(&State[T]{Stale: true})
	switch {
	case k.Read != nil:
		return k, k.Load(true)
	case k.Consul != nil:
		k.prepare()
	}
	_, err := k.activateChosen(time.Now())
	return k, err
}

// prepare prepares to follow Consul, and reads the cache.
func (k *Keeper[T]) prepare() {
	k.events = make(chan event[T])
	k.current.queryErr = ErrNoAnswer
	if k.CanaryOf != "" {
		k.canary.queryErr = ErrNoAnswer
	}
	k.ConsulState = NewCondition(k.Log, k.What+" cannot be read from consul; the node keeps what it has", k.What+" can be read from consul again", ErrNoAnswer)
	k.CacheState = NewCondition(k.Log, k.What+" cannot be cached; a restart while consul is unreachable has none", k.What+" are cached again", nil)
	if k.Bootstrap != nil {
		k.BootstrapState = NewCondition(k.Log, k.What+" cannot be bootstrapped; the node retries until consul answers", k.What+" are bootstrapped", nil)
	}
	if k.Verify != nil {
		k.SignatureState = NewCondition(k.Log, k.What+" have no valid signature", k.What+" have a valid signature again", nil)
	}
	failed := func() { count(k.Metrics.CacheErrors) }
	k.cache = newCache(k.Cache, k.CacheState, failed)
	if err := k.readCache(); err != nil && !errors.Is(err, os.ErrNotExist) {
		failed()
		k.Log.Error("cached "+k.What+" not used", "error", fmt.Errorf("%s: %w; it is overwritten by the next good document", k.Cache, err))
	}
	err := k.cache.prepare()
	if err != nil {
		failed()
	}
	k.CacheState.Note(err)
}

// Run follows until ctx ends. It chooses at the start and whenever that may change anything:
// after news, when something expires, and at least once per minute, because clocks may be
// adjusted.
func (k *Keeper[T]) Run(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	if k.Consul != nil {
		k.follow(ctx, &wg)
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case ev := <-k.events:
			k.take(ev, time.Now())
		case <-k.wake:
		case <-timer.C:
		}
		now := time.Now()
		k.mu.Lock()
		again, err := k.activateChosen(now)
		k.mu.Unlock()
		if err != nil {
			k.Log.Error("valid "+k.What+" cannot be activated", "error", err)
		}
		timer.Reset(max(0, min(again, k.nextLook(now))))
	}
}

// activateChosen activates the document that should be active, publishes the resulting state, and
// returns when to do so again.
func (k *Keeper[T]) activateChosen(now time.Time) (again time.Duration, err error) {
	again = time.Minute
	if k.override != nil {
		if again = min(again, k.ends.Sub(now)); again <= 0 {
			again, k.override = time.Minute, nil
		}
	}
	c, before := k.choose(now), k.state.Load()
	next := &State[T]{Active: before.Active, Since: before.Since, Canary: c.canary, Pointer: c.pointer, Refused: c.refused}
	if d := cmp.Or(k.override, c.document, k.Fallback); d != nil {
		if before.Active == nil || before.Version() != d.Pointer.Version {
			if err = k.Activate(d, c.canary); err != nil {
				return again, err
			}
			next.Since = now
		}
		next.Active = d
	}
	next.Stale = k.stale(&c, next.Version())
	set(k.Metrics.SourceUp, c.lost == nil)
	if k.Unsigned != nil && k.Read == nil && k.PartLoader == nil {
		set(k.Unsigned.WithLabelValues(k.Name), !k.SignatureState.ok())
	}
	k.state.Store(next)
	if k.Published != nil {
		k.Published(before, next)
	}
	if k.Changed != nil && (next.Version() != before.Version() || next.Refused.String() != before.Refused.String()) {
		k.Changed()
	}
	return again, nil
}

func (k *Keeper[T]) stale(c *choice[T], version string) bool {
	switch {
	case k.Read != nil:
		return c.refused != nil
	case !c.known:
		return true
	case c.pointer == nil:
		return !k.Optional || c.refused != nil
	}
	return c.pointer.Version != version
}

// State returns what is active now.
func (k *Keeper[T]) State() *State[T] { return k.state.Load() }

// Override temporarily activates a document on this node only; nil ends that.
func (k *Keeper[T]) Override(d *Document[T], lasts time.Duration) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	override, ends := k.override, k.ends
	k.override, k.ends = d, time.Now().Add(lasts)
	if _, err := k.activateChosen(time.Now()); err != nil {
		k.override, k.ends = override, ends
		return err
	}
	select {
	case k.wake <- struct{}{}:
	default:
	}
	return nil
}

// Refresh activates the active document again.
func (k *Keeper[T]) Refresh() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if s := k.state.Load(); s.Active != nil {
		_ = k.Activate(s.Active, s.Canary) // it was activated before
	}
}

// Successor returns the version that follows the active one when it expires, and when that is;
// zero if it does not expire.
func (k *Keeper[T]) Successor() (version string, ends time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := time.Now()
	c := k.choose(now)
	next := c.next
	switch {
	case k.override != nil:
		next, ends = c.document, k.ends
	case c.left == 0:
		return "", ends
	default:
		ends = now.Add(c.left)
	}
	if next = cmp.Or(next, k.Fallback); next != nil {
		version = next.Pointer.Version
	}
	return version, ends
}

// Meta adds what is active and refused to the node's registration.
func (k *Keeper[T]) Meta(meta map[string]string) {
	s := k.State()
	if s.Active != nil || !k.Optional {
		meta[k.Name+consul.MetaVersion] = s.Version()
	}
	meta[k.Name+consul.MetaRefused] = s.Refused.String()
}

// Faults returns what readiness shows of a kind, "" for what is well.
func (k *Keeper[T]) Faults() (refused, cache, signature string) {
	return k.State().Refused.String(), k.CacheState.Fault(), k.SignatureState.Fault()
}

func count(c prometheus.Counter) {
	if c != nil {
		c.Inc()
	}
}

func set(g prometheus.Gauge, is bool) {
	if g != nil {
		g.Set(metric.OneIf(is))
	}
}
