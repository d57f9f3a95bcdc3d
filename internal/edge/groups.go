package edge

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
	"github.com/weir-edge/weir/pkg/shedder"
)

// group is upstreams that are overloaded together: a slow group sheds its own requests
// only.
type group struct {
	name    string
	pool    *proxy.Pool
	shedder *shedder.Shedder
}

// upstreamWatch counts what happens to upstreams, and logs what an operator must repair
// there.
type upstreamWatch struct {
	*metrics
	log     *slog.Logger
	group   string
	seconds prometheus.Observer // of the group
}

// of returns the observer of one group's upstreams.
func (w upstreamWatch) of(group string) proxy.Observer {
	w.group, w.seconds = group, w.upstreamSeconds.WithLabelValues(group)
	return w
}

// Upstream implements proxy.Observer.
func (w upstreamWatch) Upstream(d time.Duration, kind proxy.Kind) {
	if kind == proxy.KindNone {
		w.seconds.Observe(d.Seconds())
		return
	}
	w.Stream(kind)
}

// Stream implements proxy.StreamObserver.
func (w upstreamWatch) Stream(kind proxy.Kind) {
	w.upstreamErrors.WithLabelValues(kind.String(), w.group).Inc()
}

// Unasked implements proxy.UnaskedObserver.
func (w upstreamWatch) Unasked(upstream string, first bool) {
	w.upstreamUnasked.Inc()
	if first {
		w.log.Warn("upstream sent bytes that no request asked for; its connections are not reused for a minute", "upstream", upstream)
	}
}

// Health implements proxy.HealthObserver.
func (w upstreamWatch) Health(upstream string, cause error) {
	if cause != nil {
		w.log.Warn("upstream fails its health checks; others of its group get its requests", "upstream", upstream, "error", cause)
		return
	}
	w.log.Info("upstream passes its health checks again", "upstream", upstream)
}

var (
	_ proxy.StreamObserver  = upstreamWatch{}
	_ proxy.UnaskedObserver = upstreamWatch{}
	_ proxy.HealthObserver  = upstreamWatch{}
)

// upstreams are the groups and the routes to them.
type upstreams struct {
	groups  []*group
	routes  decide.Routes
	sampler *shedder.Sampler
	loop    proxy.Loop
}

// newUpstreams makes the groups and the routes to them. Their shedders are configured
// afterwards.
func newUpstreams(c *config.Config, w upstreamWatch) (*upstreams, error) {
	u := &upstreams{sampler: shedder.NewSampler(nil)}
	if c.Upstream.Loop != "off" {
		u.loop = proxy.NewLoop(c.Upstream.Loop)
	}
	pools, err := c.Pools(w.of, u.loop)
	if err != nil {
		return nil, err
	}
	for i, name := range c.Groups() {
		s, err := shedder.New(name, shedder.Defaults())
		if err != nil {
			config.ClosePools(pools)
			return nil, err
		}
		u.groups = append(u.groups, &group{name: name, pool: pools[i], shedder: s})
	}
	names := c.Groups()
	u.routes.Otherwise = slices.Index(names, config.DefaultGroup)
	for _, r := range c.Routes {
		u.routes.Groups = append(u.routes.Groups, slices.Index(names, r.Group))
	}
	if u.routes.Conditions, err = c.RouteMatcher(); err != nil {
		config.ClosePools(pools)
		return nil, err
	}
	return u, nil
}

func (u *upstreams) group(name string) *group {
	for _, g := range u.groups {
		if g.name == name {
			return g
		}
	}
	return nil
}

// sample runs the shedders' measurements until ctx ends.
func (u *upstreams) sample(ctx context.Context) {
	u.sampler.Run(ctx, u.shedders()...)
}

// checkHealth checks the upstreams until ctx ends.
func (u *upstreams) checkHealth(ctx context.Context) {
	var wg sync.WaitGroup
	for _, g := range u.groups {
		wg.Go(func() { g.pool.CheckHealth(ctx) })
	}
	wg.Wait()
}

// shedders returns the shedders of the groups, in order.
func (u *upstreams) shedders() (all []*shedder.Shedder) {
	for _, g := range u.groups {
		all = append(all, g.shedder)
	}
	return all
}

// tunnels returns how many connections have switched to another protocol.
func (u *upstreams) tunnels() (n int) {
	for _, g := range u.groups {
		n += g.pool.Tunnels()
	}
	return n
}

// drainTunnels closes them all within d.
func (u *upstreams) drainTunnels(d time.Duration) {
	var wg sync.WaitGroup
	for _, g := range u.groups {
		wg.Go(func() { g.pool.DrainTunnels(d) })
	}
	wg.Wait()
}

func (u *upstreams) close() {
	for _, g := range u.groups {
		g.pool.Close()
	}
}
