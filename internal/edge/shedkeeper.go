package edge

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weir-edge/weir/internal/adminapi"
	"github.com/weir-edge/weir/internal/edge/config"
	"github.com/weir-edge/weir/internal/edge/decide"
	"github.com/weir-edge/weir/internal/edge/documents"
	"github.com/weir-edge/weir/internal/shedding"
	"github.com/weir-edge/weir/pkg/limiter/rules"
	"github.com/weir-edge/weir/pkg/region/consul"
)

// shedKeeper keeps the right settings of the shedder active. The levels, from the
// innermost:
//
//	configured  the configuration's, or the defaults
//	base        what Consul, or the copy on disk, says until further notice
//	temporary   what Consul says until a certain time
//	admin       what an operator set on this node only, until a certain time
//
// The outermost level that is set and has not expired wins.
type shedKeeper struct {
	config    *config.Config
	log       *slog.Logger
	metrics   *metrics
	upstreams *upstreams
	changed   func() // tells the registrar to update the registration
	follower  *documents.Follower[shedding.Document]
	active    atomic.Pointer[shedSettings]
	meta      atomic.Pointer[map[string]string]
	wake      chan struct{} // holds one signal: the next expiry has changed

	mu        sync.Mutex // the admin side uses it too
	admin     *shedding.Document
	adminEnds time.Time // monotonic
}

// open activates the first settings. It does not connect yet; client is nil unless Consul
// is followed.
func (k *shedKeeper) open(client *consul.Client) error {
	k.wake = make(chan struct{}, 1)
	k.follower = documents.New(documents.Config[shedding.Document]{
		Kind: documents.Kind[shedding.Document]{Name: "shedder", What: "shedder settings", Compile: shedding.Parse, Faults: messages, Temporary: true, Verify: k.config.Verify()},
		Log:  k.log, Consul: client, Cache: k.config.Shedder.Cache, Owner: k.config.CacheOwner(),
		Rejected: k.metrics.shedderRejected.Inc, CacheFailed: k.metrics.shedCacheErrors.Inc,
	})
	k.mu.Lock()
	defer k.mu.Unlock()
	_, err := k.settle(time.Now())
	return err
}

// shedding returns the active settings, for requests.
func (k *shedKeeper) shedding() *decide.Shedding { return &k.active.Load().Shedding }

// run follows Consul, if settings come from there, and expires temporary settings, until
// ctx ends.
func (k *shedKeeper) run(ctx context.Context) {
	k.follower.Run(ctx, k.wake, func(now time.Time) time.Duration {
		k.mu.Lock()
		defer k.mu.Unlock()
		again, err := k.settle(now)
		if err != nil {
			k.log.Error("valid shedder settings cannot be activated", "error", err)
		}
		return again
	})
}

// settle activates the settings that should be active, publishes the resulting state, and
// returns when the admin's expire.
func (k *shedKeeper) settle(now time.Time) (again time.Duration, err error) {
	if k.admin != nil && !now.Before(k.adminEnds) {
		k.admin = nil
	}
	again = time.Minute
	if k.admin != nil {
		again = k.adminEnds.Sub(now)
	}
	c := k.follower.Choose(now)
	k.metrics.signed(k.follower.Name, k.follower.SignatureState)
	document, source := k.chosen(&c)
	s := k.active.Load()
	switch {
	case s == nil || s.Document.Version != document.Version:
		if s, err = k.enforce(document, source); err != nil {
			return again, err
		}
	case s.source != source: // the same document: keep its state
		same := *s
		same.source = source
		s = &same
		k.active.Store(s)
		k.metrics.shedding(s, nil)
	}
	meta := map[string]string{consul.MetaShedderVersion: s.Document.Version, consul.MetaShedderRefused: c.Refused.String()}
	if before := k.meta.Swap(&meta); before == nil || !maps.Equal(*before, meta) {
		k.changed()
	}
	return again, nil
}

// chosen returns the settings that should be active.
func (k *shedKeeper) chosen(c *documents.Choice[shedding.Document]) (d *shedding.Document, source string) {
	switch {
	case k.admin != nil:
		return k.admin, adminapi.SourceAdmin
	case c.Document != nil:
		return c.Document.Made, c.Document.Source
	}
	return k.configured()
}

// configured returns the settings that apply when nothing is published or overridden.
func (k *shedKeeper) configured() (d *shedding.Document, source string) {
	d = k.config.Shedder.Settings()
	if d.Version == shedding.VersionBuiltIn {
		return d, adminapi.SourceBuiltin
	}
	return d, adminapi.SourceConfig
}

// then returns the version that follows the active one when it expires, and when that is;
// zero if it does not expire.
func (k *shedKeeper) then(now time.Time, c *documents.Choice[shedding.Document]) (version string, ends time.Time) {
	next := c.Next
	switch {
	case k.admin != nil:
		next, ends = c.Document, k.adminEnds
	case c.Left == 0:
		return "", ends
	default:
		ends = now.Add(c.Left)
	}
	if next != nil {
		return next.Pointer.Version, ends
	}
	d, _ := k.configured()
	return d.Version, ends
}

// override temporarily activates a document on this node only; nil ends that.
func (k *shedKeeper) override(d *shedding.Document, lasts time.Duration) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	admin, ends := k.admin, k.adminEnds
	k.admin, k.adminEnds = d, time.Now().Add(lasts)
	if _, err := k.settle(time.Now()); err != nil {
		k.admin, k.adminEnds = admin, ends
		return err
	}
	select {
	case k.wake <- struct{}{}:
	default:
	}
	return nil
}

// enforce swaps the settings of all groups, or of none.
func (k *shedKeeper) enforce(d *shedding.Document, source string) (*shedSettings, error) {
	next := &shedSettings{source: source, since: time.Now(), counters: map[shedLabels]prometheus.Counter{}}
	next.Document = d
	var err error
	if next.Classes, err = d.Matcher(); err != nil {
		return nil, err
	}
	if next.User, err = rules.ParseKey(d.User); err != nil {
		return nil, err
	}
	for _, g := range k.upstreams.groups { // validate all of them before changing any
		s, err := d.Settings(g.name)
		if err != nil {
			return nil, err
		}
		k.metrics.expectShed(next, &s, g.name)
		if room := k.config.Room(g.name); s.Enabled && s.Classes[0].MaxInFlight > int64(room) {
			k.log.Warn("a cap is out of reach: requests get 502 when all connections to the upstreams are in use; raise upstream.max_conns or lower max_in_flight",
				"upstream", g.name, "max_in_flight", s.Classes[0].MaxInFlight, "connections", room, "version", d.Version)
		}
	}
	before := k.active.Swap(next)
	for _, g := range k.upstreams.groups {
		s, _ := d.Settings(g.name)
		s.Custom = k.config.Shedder.Custom
		if err := g.shedder.Configure(s); err != nil {
			return nil, fmt.Errorf("upstream %s: %w", g.name, err)
		}
	}
	k.metrics.shedding(next, before)
	k.log.Info("shedder settings active", "version", d.Version, "source", source, "enabled", d.Enabled)
	for name := range d.Upstreams {
		if k.upstreams.group(name) == nil {
			k.log.Warn("shedder settings name an upstream group that this node does not have", "upstream", name, "version", d.Version)
		}
	}
	return next, nil
}

// describe adds faults to a readiness.
func (k *shedKeeper) describe(state *adminapi.Readiness) {
	state.ShedderRefused = (*k.meta.Load())[consul.MetaShedderRefused]
	if s := k.follower.SignatureState; s != nil {
		state.ShedderSignature = s.View().Error
	}
	if cache := k.follower.CacheState; cache != nil && !cache.View().OK {
		state.ShedderCache = cache.Text()
	}
}
