// Package upstreams has the groups of upstreams, which are overloaded together, and the routes to
// them.
package upstreams

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weir-edge/weir/internal/edge/config"
	"github.com/weir-edge/weir/internal/edge/decide"
	"github.com/weir-edge/weir/internal/edge/proxy"
	"github.com/weir-edge/weir/internal/metric"
	"github.com/weir-edge/weir/pkg/shedder"
	"github.com/weir-edge/weir/pkg/shedder/sampler"
)

// Group is upstreams that are overloaded together: a slow group sheds its own requests
// only.
type Group struct {
	Name    string
	Pool    *proxy.Pool
	Shedder *shedder.Shedder
}

// watch counts what happens to upstreams, and logs what an operator must repair
// there.
type watch struct {
	*metrics
	log     *slog.Logger
	group   string
	seconds prometheus.Observer // of the group
}

// of returns the observer of one group's upstreams.
func (w watch) of(group string) proxy.Observer {
	w.group, w.seconds = group, w.metrics.seconds.WithLabelValues(group)
	return w
}

// Upstream implements proxy.Observer.
func (w watch) Upstream(d time.Duration, kind proxy.Kind) {
	if kind == proxy.KindNone {
		w.seconds.Observe(d.Seconds())
		return
	}
	w.Stream(kind)
}

// Stream implements proxy.StreamObserver.
func (w watch) Stream(kind proxy.Kind) {
	w.metrics.errors.WithLabelValues(kind.String(), w.group).Inc()
}

// Unsolicited implements proxy.UnsolicitedObserver.
func (w watch) Unsolicited(upstream string, first bool) {
	w.metrics.unsolicited.Inc()
	if first {
		w.log.Warn("upstream sent bytes that no request asked for; its connections are not reused for a minute", "upstream", upstream)
	}
}

// Health implements proxy.HealthObserver.
func (w watch) Health(upstream string, cause error) {
	if cause != nil {
		w.log.Warn("upstream fails its health checks; others of its group get its requests", "upstream", upstream, "error", cause)
		return
	}
	w.log.Info("upstream passes its health checks again", "upstream", upstream)
}

var (
	_ proxy.StreamObserver      = watch{}
	_ proxy.UnsolicitedObserver = watch{}
	_ proxy.HealthObserver      = watch{}
)

// Set is the groups and the routes to them.
type Set struct {
	Groups  []*Group
	Routes  decide.Routes
	Loop    proxy.Loop
	sampler *sampler.Sampler
}

// New makes the groups and the routes to them. Their shedders are configured
// afterwards.
func New(c *config.Config, log *slog.Logger, registry metric.Registry) (*Set, error) {
	w := watch{metrics: newMetrics(registry), log: log}
	u := &Set{sampler: sampler.New(nil)}
	if c.Upstream.Loop != "off" {
		u.Loop = proxy.NewLoop(c.Upstream.Loop)
	}
	pools, err := c.Pools(w.of, u.Loop)
	if err != nil {
		return nil, err
	}
	for i, name := range c.Groups() {
		s, err := shedder.New(name, shedder.Defaults())
		if err != nil {
			config.ClosePools(pools)
			return nil, err
		}
		u.Groups = append(u.Groups, &Group{Name: name, Pool: pools[i], Shedder: s})
	}
	names := c.Groups()
	u.Routes.Default = slices.Index(names, config.DefaultGroup)
	for _, r := range c.Routes {
		u.Routes.Groups = append(u.Routes.Groups, slices.Index(names, r.Group))
	}
	if u.Routes.Conditions, err = c.RouteMatcher(); err != nil {
		config.ClosePools(pools)
		return nil, err
	}
	registry.Collect(u.health, upstreamHealthy)
	registry.GaugeFunc("weir_upgrades_active", "Connections that have switched to another protocol, such as WebSocket.", func() float64 { return float64(u.Tunnels()) })
	return u, nil
}

// Host returns the host of requests without one, which origins then get, whatever their group.
func (u *Set) Host() string { return u.Groups[u.Routes.Default].Pool.Host() }

// Sample runs the shedders' measurements until ctx ends.
func (u *Set) Sample(ctx context.Context) {
	u.sampler.Run(ctx, u.Shedders()...)
}

// CheckHealth checks the upstreams until ctx ends.
func (u *Set) CheckHealth(ctx context.Context) {
	var wg sync.WaitGroup
	for _, g := range u.Groups {
		wg.Go(func() { g.Pool.CheckHealth(ctx) })
	}
	wg.Wait()
}

// Shedders returns the shedders of the groups, in order.
func (u *Set) Shedders() (all []*shedder.Shedder) {
	for _, g := range u.Groups {
		all = append(all, g.Shedder)
	}
	return all
}

// Tunnels returns how many connections have switched to another protocol.
func (u *Set) Tunnels() (n int) {
	for _, g := range u.Groups {
		n += g.Pool.Tunnels()
	}
	return n
}

// DrainTunnels closes them all within d.
func (u *Set) DrainTunnels(d time.Duration) {
	var wg sync.WaitGroup
	for _, g := range u.Groups {
		wg.Go(func() { g.Pool.DrainTunnels(d) })
	}
	wg.Wait()
}

func (u *Set) Close() {
	for _, g := range u.Groups {
		g.Pool.Close()
	}
}
