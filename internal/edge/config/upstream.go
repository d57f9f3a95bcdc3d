package config

import (
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/weir-edge/weir/internal/edge/proxy"
	"github.com/weir-edge/weir/pkg/field"
)

// Upstream is one origin.
type Upstream struct {
	URL   string `yaml:"url"`
	Group string `yaml:"group"` // "" is defaultGroup
	// HTTP2 says that an https upstream speaks HTTP/2; the node then uses nothing else.
	HTTP2 bool `yaml:"http2"`
}

// target is the URL as proxy knows it.
func (u *Upstream) target() string {
	if rest, ok := strings.CutPrefix(u.URL, "https://"); ok && u.HTTP2 {
		return "h2://" + rest
	}
	return u.URL
}

// Forward is how requests are forwarded.
type Forward struct {
	DialTimeout   time.Duration `yaml:"dial_timeout"`
	Timeout       time.Duration `yaml:"timeout"`
	StreamTimeout time.Duration `yaml:"stream_timeout"`
	IdleTimeout   time.Duration `yaml:"idle_timeout"`
	MaxConns      int           `yaml:"max_conns"`
	FailAfter     int           `yaml:"fail_after"`
	FailFor       time.Duration `yaml:"fail_for"`
	CAFile        string        `yaml:"ca_file"`
	// MaxHeaderBytes bounds a response's header. Each connection has a buffer of that size.
	MaxHeaderBytes int               `yaml:"max_header_bytes"`
	Upgrade        []string          `yaml:"upgrade"` // the protocols that a connection may switch to
	TunnelTimeout  time.Duration     `yaml:"tunnel_timeout"`
	Loop           string            `yaml:"loop"` // the header that reveals loops
	HealthCheck    proxy.HealthCheck `yaml:"health_check"`
	// Groups have settings of their own, by name.
	Groups map[string]Group `yaml:"groups"`
}

// Group replaces fields of ForwardConfig for one group; nil: the same.
type Group struct {
	Upgrade     *[]string    `yaml:"upgrade"`
	HealthCheck *healthCheck `yaml:"health_check"`
}

// healthCheck takes the defaults, not upstream's values, for missing fields: an empty one checks nothing.
type healthCheck proxy.HealthCheck

// UnmarshalField implements field.Unmarshaler.
func (h *healthCheck) UnmarshalField(d *field.Decoder, n *field.Node) {
	check := Defaults().Upstream.HealthCheck
	d.Decode(n, &check)
	*h = healthCheck(check)
}

// of returns the settings of a group.
func (u *Forward) of(group string) (upgrade []string, check proxy.HealthCheck) {
	upgrade, check = u.Upgrade, u.HealthCheck
	own := u.Groups[group]
	if own.Upgrade != nil {
		upgrade = *own.Upgrade
	}
	if own.HealthCheck != nil {
		check = proxy.HealthCheck(*own.HealthCheck)
	}
	return upgrade, check
}

func (c *Config) validateForward(f *faults) {
	f.positive("upstream.dial_timeout", c.Upstream.DialTimeout)
	f.positive("upstream.timeout", c.Upstream.Timeout)
	f.positive("upstream.stream_timeout", c.Upstream.StreamTimeout)
	f.positive("upstream.idle_timeout", c.Upstream.IdleTimeout)
	f.positive("upstream.fail_for", c.Upstream.FailFor)
	f.file("upstream.ca_file", c.Upstream.CAFile)
	f.atLeastOne("upstream.max_conns", int64(c.Upstream.MaxConns))
	f.atLeastOne("upstream.fail_after", int64(c.Upstream.FailAfter))
	f.positive("upstream.tunnel_timeout", c.Upstream.TunnelTimeout)
	if n := c.Upstream.MaxHeaderBytes; n < 4<<10 || n > 1<<20 {
		f.add("upstream.max_header_bytes", "must be between 4096 and 1048576 (got %d)", n)
	}
	f.word("upstream.loop", c.Upstream.Loop, "via", "cdn-loop", "off")
	validateHealthCheck(f, "upstream.health_check.", c.Upstream.HealthCheck)
	validateUpgrade(f, "upstream.upgrade", c.Upstream.Upgrade)
	groups := c.Groups()
	for _, name := range slices.Sorted(maps.Keys(c.Upstream.Groups)) {
		at := "upstream.groups." + field.Name(name)
		if !slices.Contains(groups, name) {
			f.add(at, "is not a group of upstreams%s", field.SuggestOr(name, groups...))
		}
		own := c.Upstream.Groups[name]
		if own == (Group{}) {
			f.add(at, "has no effect; set upgrade or health_check, or remove it")
		}
		if own.Upgrade != nil {
			validateUpgrade(f, at+".upgrade", *own.Upgrade)
		}
		if own.HealthCheck != nil {
			validateHealthCheck(f, at+".health_check.", proxy.HealthCheck(*own.HealthCheck))
		}
	}
}

func validateUpgrade(f *faults, path string, protocols []string) {
	for i, p := range protocols {
		at := field.Index(path, i)
		switch {
		case strings.HasPrefix(strings.ToLower(p), "h2"), strings.Contains(strings.ToLower(p), "http/"), strings.HasPrefix(strings.ToLower(p), "tls"):
			f.add(at, "must not be %s: the requests that follow it would pass every rule", p)
		case p == "" || strings.ContainsAny(p, " \t\r\n,;\"()"):
			f.add(at, "must be the name of a protocol, as in websocket (got %q)", p)
		}
	}
}

func validateHealthCheck(f *faults, at string, h proxy.HealthCheck) {
	switch {
	case h == Defaults().Upstream.HealthCheck:
		return // off
	case h.Path == "":
		f.add(at+"path", "must be set, as in /healthz: without it nothing is checked")
	case h.Path[0] != '/' || strings.ContainsFunc(h.Path, func(r rune) bool { return r <= ' ' || r > '~' || r == '#' }):
		f.add(at+"path", "must be a path in ASCII that begins with /, without spaces and #, as in /healthz (got %q)", h.Path)
	default:
		if _, err := url.ParseRequestURI(h.Path); err != nil {
			f.add(at+"path", "must have two hexadecimal digits after each %% (got %q)", h.Path)
		}
	}
	f.positive(at+"interval", h.Interval)
	f.positive(at+"timeout", h.Timeout)
	if h.Timeout > h.Interval && h.Interval > 0 {
		f.add(at+"timeout", "must not be longer than interval, %s (got %s)", h.Interval, h.Timeout)
	}
	f.atLeastOne(at+"healthy", int64(h.Healthy))
	f.atLeastOne(at+"unhealthy", int64(h.Unhealthy))
	if strings.ContainsFunc(h.Host, func(r rune) bool { return r <= ' ' || r > '~' || strings.ContainsRune("/?#@\\", r) }) {
		f.add(at+"host", "must be a host name, with a port if need be (got %q)", h.Host)
	}
}
