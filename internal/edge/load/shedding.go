// Package load has what a node does about load: the shedder's settings in force, limits that
// follow load, and the load that it registers.
package load

import (
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weir-edge/weir/internal/adminapi"
	"github.com/weir-edge/weir/internal/edge/config"
	"github.com/weir-edge/weir/internal/edge/decide"
	"github.com/weir-edge/weir/internal/edge/documents"
	"github.com/weir-edge/weir/internal/logs"
	"github.com/weir-edge/weir/internal/metric"
	"github.com/weir-edge/weir/internal/shedding"
	"github.com/weir-edge/weir/pkg/limiter/rules"
	"github.com/weir-edge/weir/pkg/shedder"
)

// Shedding is the settings of the shedder in force: those that an operator set on this node
// only, until a certain time; or else what Consul, or the copy on disk, says; or else the
// configuration's.
type Shedding struct {
	*documents.Keeper[shedding.Document]
	config   *config.Config
	log      *slog.Logger
	metrics  *shedMetrics
	shedders []*shedder.Shedder // by upstream group
	active   atomic.Pointer[shedSettings]
	sampler  logs.Sampler
}

// shedSettings are the active settings with what counts their refusals, swapped as one.
// They are immutable.
type shedSettings struct {
	decide.Shedding
	counters map[shedLabels]prometheus.Counter
}

// shedLabels are the labels of weir_shed_total.
type shedLabels struct{ class, reason, upstream string }

// OpenShedding activates the first settings.
func OpenShedding(node documents.Node, c *config.Config, registry metric.Registry, shedders []*shedder.Shedder) (k *Shedding, err error) {
	k = &Shedding{config: c, log: node.Log, metrics: newShedMetrics(registry), shedders: shedders}
	registry.Collect(k.collect, utilizationDesc, signalUpDesc, signalDesc, kneeDesc, thresholdDesc, levelDesc, probabilityDesc, inflightDesc,
		inflightMaxDesc, autoKneeDesc, fullRateDesc, baseDesc, probesDesc, shadowKneeDesc, shadowDesc)
	if c.Shedder.Source != config.FromConsul {
		node.Consul = nil
	}
	configured, source := c.Shedder.Settings(), adminapi.SourceConfig
	if configured.Version == shedding.VersionBuiltIn {
		source = adminapi.SourceBuiltin
	}
	k.Keeper, err = documents.New(documents.Config[shedding.Document]{
		Kind: documents.Kind[shedding.Document]{Name: "shedder", What: "shedder settings", Compile: shedding.Parse, Temporary: true, Verify: c.Verify()},
		Node: node, Activate: k.activate, Published: k.published, Fallback: documents.Local(configured.Version, configured, source), Cache: c.Shedder.Cache,
		Metrics: documents.Metrics{Rejected: k.metrics.rejected, CacheErrors: k.metrics.cacheErrors},
	})
	return k, err
}

// Settings returns the active settings, for requests.
func (k *Shedding) Settings() *decide.Shedding { return &k.active.Load().Shedding }

// activate swaps the settings of all groups, or of none.
func (k *Shedding) activate(made *documents.Document[shedding.Document], _ bool) error {
	d, next := made.Compiled, &shedSettings{counters: map[shedLabels]prometheus.Counter{}}
	next.Document = d
	var err error
	if next.Classes, err = d.Matcher(); err != nil {
		return err
	}
	if next.User, err = rules.ParseKey(d.User); err != nil {
		return err
	}
	groups := k.config.Groups()
	for _, name := range groups { // validate all of them before changing any
		s, err := d.Settings(name)
		if err != nil {
			return err
		}
		k.metrics.expect(next, &s, name)
		if room := k.config.MaxInFlight(name); s.Enabled && s.Classes[0].MaxInFlight > int64(room) {
			k.log.Warn("a cap is out of reach: requests get 502 when all connections to the upstreams are in use; raise upstream.max_conns or lower max_in_flight",
				"upstream", name, "max_in_flight", s.Classes[0].MaxInFlight, "connections", room, "version", d.Version)
		}
	}
	before := k.active.Swap(next)
	for i, name := range groups {
		s, _ := d.Settings(name)
		s.Custom = k.config.Shedder.Custom
		if err := k.shedders[i].Configure(s); err != nil {
			return fmt.Errorf("upstream %s: %w", name, err)
		}
	}
	k.metrics.drop(next, before)
	k.log.Info("shedder settings active", "version", d.Version, "source", made.Source, "enabled", d.Enabled)
	for name := range d.Upstreams {
		if !slices.Contains(groups, name) {
			k.log.Warn("shedder settings name an upstream group that this node does not have", "upstream", name, "version", d.Version)
		}
	}
	return nil
}

// published shows operators a state.
func (k *Shedding) published(before, s *documents.State[shedding.Document]) {
	if before.Version() != s.Version() || before.Source() != s.Source() {
		k.metrics.info.Reset()
		k.metrics.info.WithLabelValues(s.Version(), s.Source(), strconv.FormatBool(s.Active.Compiled.Enabled)).Set(1)
	}
}

// Shed counts and logs a request that was shed.
func (k *Shedding) Shed(r *decide.Request, reason shedder.Reason) {
	k.metrics.count(k.active.Load(), reason)
	if skipped, ok := k.sampler.Sample(r.Began); ok {
		k.log.Info("request shed", "class", reason.Class, "upstream", reason.Upstream, "kind", reason.Kind, "signal", reason.Signal,
			"value", reason.Value, "threshold", reason.Threshold, "utilization", reason.Utilization, "level", reason.Level,
			"version", reason.Version, "not_logged", skipped)
	}
}
