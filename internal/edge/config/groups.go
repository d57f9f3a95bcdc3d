package config

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/weir-edge/weir/internal/edge/proxy"
	"github.com/weir-edge/weir/pkg/certs"
	"github.com/weir-edge/weir/pkg/field"
	"github.com/weir-edge/weir/pkg/limiter/rules"
	"github.com/weir-edge/weir/pkg/region/consul"
)

// DefaultGroup has the upstreams that name no group, and the requests that no route
// sends elsewhere.
const DefaultGroup = "default"

// Route sends requests to an upstream group.
type Route struct {
	Match rules.Conditions `yaml:"match"` // as in a rule; a header sent twice matches no route
	Group string           `yaml:"group"` // required: the group of matching requests
}

// Groups returns the names of the upstream groups, in the order of the file.
func (c *Config) Groups() []string {
	var names []string
	for _, u := range c.Upstreams {
		if name := u.group(); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

func (u *Upstream) group() string { return cmp.Or(u.Group, DefaultGroup) }

func (c *Config) validateGroups(f *faults) {
	if len(c.Upstreams) == 0 {
		f.add("upstreams", "must name at least one, as in [{url: \"http://127.0.0.1:9000\"}]")
		return
	}
	routed := map[string]bool{DefaultGroup: true}
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
	names := c.Groups()
	if !slices.Contains(names, DefaultGroup) {
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
	if _, err := c.RouteMatcher(); good {
		f.list.Take("routes", err)
	}
}

func (c *Config) RouteMatcher() (*rules.Matcher, error) {
	var list []rules.Conditions
	for _, r := range c.Routes {
		list = append(list, r.Match)
	}
	return rules.NewMatcher(list)
}

// routeWarnings tells of paths in routes that no request can have without getting 400.
func (c *Config) routeWarnings() []string {
	m, err := c.RouteMatcher()
	if err != nil {
		return nil
	}
	names := c.Groups()
	groups := make([]int, len(c.Routes))
	for i, r := range c.Routes {
		groups[i] = slices.Index(names, r.Group)
	}
	return m.Warnings(groups, slices.Index(names, DefaultGroup), func(i int) string { return fmt.Sprintf("routes[%d].match", i) })
}

// Pools returns the connection pool of each group, in the order of groups. It does not
// connect yet.
func (c *Config) Pools(observe func(group string) proxy.Observer, loop proxy.Loop) (pools []*proxy.Pool, err error) {
	defer func() {
		if err != nil {
			ClosePools(pools)
		}
	}()
	ca, err := certs.Pool(c.Upstream.CAFile)
	if err != nil {
		return nil, fmt.Errorf("upstream.ca_file: %w", err)
	}
	for _, name := range c.Groups() {
		pc, indexes := c.proxy(name)
		pc.Observer, pc.Loop = observe(name), loop
		if ca != nil {
			pc.TLS = &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: ca}
		}
		pool, wrong := proxy.New(pc)
		for _, one := range each(wrong) {
			if u, ok := one.(*proxy.URLError); ok {
				u.Index = indexes[u.Index]
			}
		}
		if err = errors.Join(err, wrong); wrong == nil {
			pools = append(pools, pool)
		}
	}
	return pools, err
}

func ClosePools(pools []*proxy.Pool) {
	for _, p := range pools {
		p.Close()
	}
}

// proxy returns what forwards to one group, and where its upstreams stand in the file.
func (c *Config) proxy(group string) (pc proxy.Config, indexes []int) {
	f := &c.Upstream
	upgrade, check := f.of(group)
	pc = proxy.Config{
		DialTimeout: f.DialTimeout, Timeout: f.Timeout, StreamTimeout: f.StreamTimeout, IdleTimeout: f.IdleTimeout,
		MaxConns: f.MaxConns, FailAfter: f.FailAfter, FailFor: f.FailFor, Check: check,
		MaxResponseHeaderBytes: f.MaxHeaderBytes, MaxRequestBodyBytes: c.Server.MaxBodyBytes, Upgrades: upgrade, TunnelTimeout: f.TunnelTimeout,
	}
	for i, u := range c.Upstreams {
		if u.group() == group {
			pc.Upstreams, indexes = append(pc.Upstreams, u.target()), append(indexes, i)
		}
	}
	return pc, indexes
}

// MaxInFlight returns how many requests may be at the upstreams of a group at once.
func (c *Config) MaxInFlight(group string) int {
	_, indexes := c.proxy(group)
	return len(indexes) * c.Upstream.MaxConns
}
