package edge

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weir-edge/weir/internal/edge/decide"
	"github.com/weir-edge/weir/internal/edge/proxy"
	"github.com/weir-edge/weir/pkg/certs"
	"github.com/weir-edge/weir/pkg/field"
	"github.com/weir-edge/weir/pkg/limiter/rules"
	"github.com/weir-edge/weir/pkg/region/consul"
	"github.com/weir-edge/weir/pkg/shedder"
)

// defaultGroup has the upstreams that name no group, and the requests that no route
// sends elsewhere.
const defaultGroup = "default"

// RouteConfig sends requests to an upstream group.
type RouteConfig struct {
	Match rules.Conditions `yaml:"match"`
	Group string           `yaml:"group"`
}

// group is upstreams that are overloaded together: a slow group sheds its own requests
// only.
type group struct {
	name    string
	pool    *proxy.Pool
	shedder *shedder.Shedder
}

// groups returns the names of the upstream groups, in the order of the file.
func (c *Config) groups() []string {
	var names []string
	for _, u := range c.Upstreams {
		if name := u.group(); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

func (u *UpstreamConfig) group() string {
	if u.Group == "" {
		return defaultGroup
	}
	return u.Group
}

func (c *Config) validateGroups(f *faults) {
	if len(c.Upstreams) == 0 {
		f.add("upstreams", "must name at least one, as in [{url: \"http://127.0.0.1:9000\"}]")
		return
	}
	routed := map[string]bool{defaultGroup: true}
	for _, r := range c.Routes {
		routed[r.Group] = true
	}
	for i, u := range c.Upstreams {
		at := fmt.Sprintf("upstreams[%d].group", i)
		if err := consul.CheckName(u.group()); err != nil {
			f.add(at, "%v", err)
		} else if !routed[u.group()] {
			f.add(at, "no route leads to %s; add one to routes, or remove the group", u.Group)
		}
		if u.HTTP2 && !strings.HasPrefix(u.URL, "https://") {
			f.add(fmt.Sprintf("upstreams[%d].http2", i), "is for https:// only; write h2c:// for HTTP/2 without TLS")
		}
	}
	names := c.groups()
	if !slices.Contains(names, defaultGroup) {
		f.add("upstreams", "must have one without a group: requests that no route matches go there")
	}
	for i, r := range c.Routes {
		if at := fmt.Sprintf("routes[%d].group", i); r.Group == "" {
			f.add(at, "must name one of the groups of upstreams: %s", strings.Join(names, ", "))
		} else if !slices.Contains(names, r.Group) {
			f.add(at, "has no upstream%s (got %q)", field.Suggest(r.Group, names...), r.Group)
		}
	}
	good := true
	for i, r := range c.Routes {
		wrong := r.Match.Check()
		f.list.Take(fmt.Sprintf("routes[%d].match", i), wrong)
		good = good && wrong == nil
	}
	if _, err := c.routeMatcher(); good {
		f.list.Take("routes", err)
	}
}

func (c *Config) routeMatcher() (*rules.Matcher, error) {
	var list []rules.Conditions
	for _, r := range c.Routes {
		list = append(list, r.Match)
	}
	return rules.NewMatcher(list)
}

// routeWarnings tells of paths in routes that no request can have without getting 400.
func (c *Config) routeWarnings() []string {
	m, err := c.routeMatcher()
	if err != nil {
		return nil
	}
	names := c.groups()
	groups := make([]int, len(c.Routes))
	for i, r := range c.Routes {
		groups[i] = slices.Index(names, r.Group)
	}
	return m.Warnings(groups, slices.Index(names, defaultGroup), func(i int) string { return fmt.Sprintf("routes[%d].match", i) })
}

// pools returns the connection pool of each group, in the order of groups. It does not
// connect yet.
func (c *Config) pools(observe func(group string) proxy.Observer, loop proxy.Loop) (pools []*proxy.Pool, err error) {
	defer func() {
		if err != nil {
			closePools(pools)
		}
	}()
	ca, err := certs.Pool(c.Upstream.CAFile)
	if err != nil {
		return nil, fmt.Errorf("upstream.ca_file: %w", err)
	}
	for _, name := range c.groups() {
		pc, places := c.proxy(name)
		pc.Observer, pc.Loop = observe(name), loop
		if ca != nil {
			pc.TLS = &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: ca}
		}
		pool, err := proxy.New(pc)
		var wrong *proxy.URLError
		if errors.As(err, &wrong) {
			wrong.Index = places[wrong.Index]
		}
		if err != nil {
			return pools, err
		}
		pools = append(pools, pool)
	}
	return pools, nil
}

func closePools(pools []*proxy.Pool) {
	for _, p := range pools {
		p.Close()
	}
}

// proxy returns what forwards to one group, and where its upstreams stand in the file.
func (c *Config) proxy(group string) (pc proxy.Config, places []int) {
	f := &c.Upstream
	upgrade, check := f.of(group)
	pc = proxy.Config{
		DialTimeout: f.DialTimeout, Timeout: f.Timeout, StreamTimeout: f.StreamTimeout, IdleTimeout: f.IdleTimeout,
		MaxConns: f.MaxConns, FailAfter: f.FailAfter, FailFor: f.FailFor, Check: check,
		MaxResponseHeaderBytes: f.MaxHeaderBytes, MaxRequestBodyBytes: c.Server.MaxBodyBytes, Upgrades: upgrade, TunnelTimeout: f.TunnelTimeout,
	}
	for i, u := range c.Upstreams {
		if u.group() == group {
			pc.Upstreams, places = append(pc.Upstreams, u.target()), append(places, i)
		}
	}
	return pc, places
}

// room returns how many requests may be at the upstreams of a group at once.
func (c *Config) room(group string) int {
	_, places := c.proxy(group)
	return len(places) * c.Upstream.MaxConns
}

// upstreamWatch counts what happens to upstreams, and logs what an operator must repair
// there.
type upstreamWatch struct {
	*metrics
	log     *slog.Logger
	group   string
	seconds prometheus.Observer // of the group
}

// of returns what watches the upstreams of one group.
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
func newUpstreams(c *Config, w upstreamWatch) (*upstreams, error) {
	u := &upstreams{sampler: shedder.NewSampler(nil)}
	if c.Upstream.Loop != "off" {
		u.loop = proxy.NewLoop(c.Upstream.Loop)
	}
	pools, err := c.pools(w.of, u.loop)
	if err != nil {
		return nil, err
	}
	for i, name := range c.groups() {
		s, err := shedder.New(name, shedder.Defaults())
		if err != nil {
			closePools(pools)
			return nil, err
		}
		u.groups = append(u.groups, &group{name: name, pool: pools[i], shedder: s})
	}
	names := c.groups()
	u.routes.Otherwise = slices.Index(names, defaultGroup)
	for _, r := range c.Routes {
		u.routes.Groups = append(u.routes.Groups, slices.Index(names, r.Group))
	}
	if u.routes.Conditions, err = c.routeMatcher(); err != nil {
		closePools(pools)
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

// shedders returns those of the groups, in their order.
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
