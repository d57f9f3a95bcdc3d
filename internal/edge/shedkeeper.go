package edge

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weir-edge/weir/internal/shedding"
	"github.com/weir-edge/weir/pkg/limiter/rules"
	"github.com/weir-edge/weir/pkg/region"
)

const fromAdmin = "admin"

// shedKeeper keeps the right settings of the shedder in force. From the innermost:
//
//	configured  the configuration's, or the defaults
//	base        what Consul, or the copy on disk, says until further notice
//	temporary   what Consul says until a certain time
//	admin       what an operator told this node alone, until a certain time
//
// The outermost that is there and not over wins.
type shedKeeper struct {
	edge *Edge
	wake chan struct{} // holds one signal: there is an end to wait for

	// Unless Consul is followed, these are nil.
	cache       *documentCache
	events      chan event[shedding.Document]
	consulState *condition
	cacheState  *condition

	mu        sync.Mutex // the admin side asks, too
	followed  followed[shedding.Document]
	base      *published // nil: the configured
	temporary *published // nil, or ends with followed
	kept      *published // that the cache was given
	admin     *shedding.Document
	adminEnds time.Time // monotonic
}

// openShedder puts the first settings in force. It connects to nothing yet.
func (e *Edge) openShedder() error {
	k := &shedKeeper{edge: e, wake: make(chan struct{}, 1)}
	e.keeper = k
	if e.consul != nil && e.config.Shedder.Source == fromConsul {
		k.openConsul()
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.settle(time.Now())
}

// openConsul prepares to follow Consul, and takes what is on disk.
func (k *shedKeeper) openConsul() {
	e := k.edge
	k.events = make(chan event[shedding.Document])
	k.followed.asked = errNoAnswer
	k.consulState = newCondition(e.log, "shedder settings cannot be read from consul, the node goes on with what it has", "shedder settings can be read from consul again", errNoAnswer)
	k.cacheState = newCondition(e.log, "shedder settings cannot be cached, a start without consul uses the configured ones", "shedder settings are cached again", nil)
	failed := e.metrics.shedCacheErrors.Inc
	k.cache = newDocumentCache(e.config.Shedder.Cache, e.config.cacheOwner(), k.cacheState, failed)
	cached, err := k.cache.read()
	if err == nil && cached != nil {
		_, err = shedding.Parse(cached.document)
	}
	if err != nil {
		failed()
		e.log.Error("cached shedder settings not used", "error", err)
	} else {
		k.base = cached
	}
	if err = k.cache.prepare(); err != nil {
		failed()
	}
	k.cacheState.note(err)
}

// run follows Consul, if that is where settings come from, and ends what is temporary,
// until ctx ends.
func (k *shedKeeper) run(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	if k.events != nil {
		documents := k.edge.consul.Documents("shedder")
		watch := &pointerWatch[shedding.Document]{
			consul: k.edge.consul, documents: documents, what: "shedder settings", key: documents.CurrentKey(), temporary: true,
			events: k.events, compile: shedding.Parse, good: k.base,
		}
		wg.Go(func() { watch.run(ctx) })
		wg.Go(func() { k.cache.run(ctx) })
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		timer.Reset(k.nextLook(time.Now()))
		var got *event[shedding.Document]
		select {
		case <-ctx.Done():
			return
		case ev := <-k.events:
			got = &ev
		case <-k.wake:
		case <-timer.C:
		}
		k.mu.Lock()
		if got != nil {
			k.take(*got, time.Now())
		}
		if err := k.settle(time.Now()); err != nil {
			k.edge.log.Error("shedder settings that were good do not hold", "error", err)
		}
		k.mu.Unlock()
	}
}

// nextLook is when something ends; at most a minute, for clocks are set.
func (k *shedKeeper) nextLook(now time.Time) time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	wait := time.Minute
	if k.admin != nil {
		wait = min(wait, k.adminEnds.Sub(now))
	}
	if k.temporary != nil {
		wait = min(wait, k.followed.left(now))
	}
	return max(wait, 0)
}

// take notes what Consul says.
func (k *shedKeeper) take(ev event[shedding.Document], now time.Time) {
	f := &k.followed
	if !f.note(ev, now) {
		return
	}
	found := &f.finding
	switch p := found.pointer; {
	case p == nil: // what is gone or malformed changes nothing
	case p.ExpiresAt == nil:
		if found.good != nil {
			k.base, k.temporary = found.good, nil
		}
	default:
		if found.good == nil && found.fault == nil && found.failure == nil {
			// Ended on purpose, or the clock of whoever set them is behind.
			k.edge.log.Info("temporary shedder settings are over", "version", p.Version, "expired_at", p.ExpiresAt.UTC())
		}
		k.temporary = found.good // the one before it has ended, too
		switch {
		case found.then != nil:
			k.base = found.then
		case p.Then == nil && (found.good != nil || p.Expired(now)):
			k.base = nil
		}
	}
	standing := f.refused
	if f.judge(k.base == nil && k.temporary == nil, false); f.refused != nil && f.refused != standing {
		k.edge.metrics.shedderRejected.Inc()
		k.edge.log.Error("shedder settings refused", "version", f.refused.Version, "error", found.fault)
	}
}

// settle puts in force what is to be, and tells what is.
func (k *shedKeeper) settle(now time.Time) error {
	e := k.edge
	if k.admin != nil && !now.Before(k.adminEnds) {
		k.admin = nil
	}
	if k.temporary != nil && k.followed.left(now) <= 0 {
		k.temporary = nil
	}
	// What is temporary must not outlive its end on disk; what follows it is kept.
	if k.base != nil && k.base != k.kept && k.base.source == fromConsul {
		k.kept = k.base
		k.cache.put(k.base)
	}
	if k.consulState != nil {
		if err := unanswered(k.followed.asked, k.followed.finding.failure); !errors.Is(err, errNoAnswer) {
			k.consulState.note(err)
		}
	}
	version, source := k.chosen()
	if before := e.shedding.Load(); before != nil && before.document.Version == version {
		if before.source != source { // the same document: nothing begins anew
			same := *before
			same.source = source
			e.shedding.Store(&same)
			e.metrics.shedding(&same, nil)
		}
		e.tellMeta(before.meta(k.followed.refused))
		return nil
	}
	document, err := k.document()
	if err != nil {
		return err
	}
	s, err := e.enforceSettings(document, source)
	if err != nil {
		return err
	}
	e.tellMeta(s.meta(k.followed.refused))
	return nil
}

// published is what Consul or the copy of it says now, or nil.
func (k *shedKeeper) published() *published {
	if k.temporary != nil {
		return k.temporary
	}
	return k.base
}

// chosen is which settings are to be in force.
func (k *shedKeeper) chosen() (version, source string) {
	switch p := k.published(); {
	case k.admin != nil:
		return k.admin.Version, fromAdmin
	case p != nil:
		return p.pointer.Version, p.source
	}
	return k.configured()
}

// configured is what there is without anybody's word.
func (k *shedKeeper) configured() (version, source string) {
	version, source = k.edge.config.Shedder.settings().Version, fromConfig
	if version == shedding.VersionBuiltIn {
		source = fromBuiltin
	}
	return version, source
}

// document is what chosen names.
func (k *shedKeeper) document() (*shedding.Document, error) {
	p := k.published()
	switch {
	case k.admin != nil:
		return k.admin, nil
	case p == nil:
		return k.edge.config.Shedder.settings(), nil
	}
	d, err := shedding.Parse(p.document)
	if err != nil {
		return nil, fmt.Errorf("version %s: %w", p.pointer.Version, err)
	}
	return d, nil
}

// then is what follows what is in force when its time is over, and when that is; zero
// if nothing does.
func (k *shedKeeper) then(now time.Time) (version string, ends time.Time) {
	switch p := k.published(); {
	case k.admin != nil && p != nil:
		return p.pointer.Version, k.adminEnds
	case k.admin != nil:
		version, _ = k.configured()
		return version, k.adminEnds
	case k.temporary == nil:
		return "", time.Time{}
	case k.base != nil:
		version = k.base.pointer.Version
	default:
		version, _ = k.configured()
	}
	return version, now.Add(k.followed.left(now))
}

// override puts a document in force on this node alone, for a while; nil ends what
// was.
func (k *shedKeeper) override(d *shedding.Document, lasts time.Duration) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	admin, ends := k.admin, k.adminEnds
	k.admin, k.adminEnds = d, time.Now().Add(lasts)
	if err := k.settle(time.Now()); err != nil {
		k.admin, k.adminEnds = admin, ends
		return err
	}
	select {
	case k.wake <- struct{}{}:
	default:
	}
	return nil
}

// enforceSettings swaps the settings of all groups, or of none.
func (e *Edge) enforceSettings(d *shedding.Document, source string) (*shedSettings, error) {
	next := &shedSettings{document: d, source: source, since: time.Now(), counters: map[shedLabels]prometheus.Counter{}}
	var err error
	if next.classes, err = d.Matcher(); err != nil {
		return nil, err
	}
	if next.user, err = rules.ParseKey(d.User); err != nil {
		return nil, err
	}
	for _, g := range e.groups { // all of them before any is changed
		s, err := d.Settings(g.name)
		if err != nil {
			return nil, err
		}
		e.metrics.expectShed(next, &s)
		if room := e.config.room(g.name); s.Enabled && s.Classes[0].MaxInFlight > int64(room) {
			e.log.Warn("a cap is out of reach: requests get 502 when all connections to the upstreams are in use; raise upstream.max_conns or lower max_in_flight",
				"upstream", g.name, "max_in_flight", s.Classes[0].MaxInFlight, "connections", room, "version", d.Version)
		}
	}
	before := e.shedding.Swap(next)
	for _, g := range e.groups {
		s, _ := d.Settings(g.name)
		if err := g.shedder.Configure(s); err != nil {
			return nil, fmt.Errorf("upstream %s: %w", g.name, err)
		}
	}
	e.metrics.shedding(next, before)
	e.log.Info("shedder settings in force", "version", d.Version, "source", source, "enabled", d.Enabled)
	for name := range d.Upstreams {
		if e.group(name) == nil {
			e.log.Warn("shedder settings name an upstream group that this node does not have", "upstream", name, "version", d.Version)
		}
	}
	return next, nil
}

// describe adds what is not as it should be.
func (k *shedKeeper) describe(state map[string]string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.followed.refused != nil {
		state["shedder_refused"] = k.followed.refused.String()
	}
	if k.cacheState != nil && !k.cacheState.view().OK {
		state["shedder_cache"] = k.cacheState.text()
	}
}

// meta is what the node's registration says of its settings.
func (s *shedSettings) meta(refused *refusal) map[string]string {
	return map[string]string{"shedder_version": s.document.Version, "shedder_refused": refused.String()}
}

func (e *Edge) tellMeta(meta map[string]string) {
	if before := e.shedderMeta.Swap(&meta); before == nil || !maps.Equal(*before, meta) {
		e.changed()
	}
}

// pointer is what Consul names, or nil.
func (k *shedKeeper) pointer() *region.Pointer { return k.followed.finding.pointer }
