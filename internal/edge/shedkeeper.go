package edge

import (
	"fmt"
	"log/slog"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weir-edge/weir/internal/adminapi"
	"github.com/weir-edge/weir/internal/edge/config"
	"github.com/weir-edge/weir/internal/edge/decide"
	"github.com/weir-edge/weir/internal/edge/documents"
	"github.com/weir-edge/weir/internal/shedding"
	"github.com/weir-edge/weir/pkg/limiter/rules"
)

// activeShedding is the settings of the shedder in force: those that an operator set on this node
// only, until a certain time; or else what Consul, or the copy on disk, says; or else the
// configuration's.
type activeShedding struct {
	*documents.Keeper[shedding.Document]
	config    *config.Config
	log       *slog.Logger
	metrics   *metrics
	upstreams *upstreams
	active    atomic.Pointer[shedSettings]
}

// openShedding activates the first settings.
func (e *Edge) openShedding() (err error) {
	k := &activeShedding{config: e.config, log: e.log, metrics: e.metrics, upstreams: e.upstreams}
	client := e.consul
	if e.config.Shedder.Source != config.FromConsul {
		client = nil
	}
	configured, source := e.config.Shedder.Settings(), adminapi.SourceConfig
	if configured.Version == shedding.VersionBuiltIn {
		source = adminapi.SourceBuiltin
	}
	k.Keeper, err = openDocument(e, documents.Config[shedding.Document]{
		Kind:     documents.Kind[shedding.Document]{Name: "shedder", What: "shedder settings", Compile: shedding.Parse, Temporary: true, Verify: e.config.Verify()},
		Activate: k.activate, Published: k.published, Otherwise: documents.Local(configured.Version, configured, source),
		Metrics: documents.Metrics{
			Rejected: e.metrics.shedderRejected, CacheErrors: e.metrics.shedCacheErrors, Unsigned: e.metrics.documentsUnsigned.WithLabelValues("shedder"),
		},
	}, client, e.config.Shedder.Cache)
	e.shedding = k
	return err
}

// settings returns the active settings, for requests.
func (k *activeShedding) settings() *decide.Shedding { return &k.active.Load().Shedding }

// activate swaps the settings of all groups, or of none.
func (k *activeShedding) activate(made *documents.Document[shedding.Document], _ bool) error {
	d, next := made.Made, &shedSettings{counters: map[shedLabels]prometheus.Counter{}}
	next.Document = d
	var err error
	if next.Classes, err = d.Matcher(); err != nil {
		return err
	}
	if next.User, err = rules.ParseKey(d.User); err != nil {
		return err
	}
	for _, g := range k.upstreams.groups { // validate all of them before changing any
		s, err := d.Settings(g.name)
		if err != nil {
			return err
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
			return fmt.Errorf("upstream %s: %w", g.name, err)
		}
	}
	k.metrics.dropShed(next, before)
	k.log.Info("shedder settings active", "version", d.Version, "source", made.Source, "enabled", d.Enabled)
	for name := range d.Upstreams {
		if k.upstreams.group(name) == nil {
			k.log.Warn("shedder settings name an upstream group that this node does not have", "upstream", name, "version", d.Version)
		}
	}
	return nil
}

// published shows operators a state.
func (k *activeShedding) published(before, s *documents.State[shedding.Document]) {
	if before.Version() != s.Version() || before.Source() != s.Source() {
		k.metrics.shedderInfo.Reset()
		k.metrics.shedderInfo.WithLabelValues(s.Version(), s.Source()).Set(1)
	}
}
