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
	URL   string `yaml:"url"`   // http://, https:// or h2c:// (HTTP/2 without TLS), host and port, no path
	Group string `yaml:"group"` // lower-case letters, digits and -; absent: default
	HTTP2 bool   `yaml:"http2"` // speak only HTTP/2 to an https:// upstream, agreed by ALPN
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
	DialTimeout    time.Duration     `yaml:"dial_timeout"`     // to connect, including the TLS handshake
	Timeout        time.Duration     `yaml:"timeout"`          // from sending a request to receiving the response's header; beyond: 504
	StreamTimeout  time.Duration     `yaml:"stream_timeout"`   // the longest pause of either side within a body; a client that has paused for longer in total must average 256 bytes per second
	IdleTimeout    time.Duration     `yaml:"idle_timeout"`     // closes an unused connection; keep it below the upstream's own
	MaxConns       int               `yaml:"max_conns"`        // open connections, or HTTP/2 streams, to each upstream; beyond: 502
	FailAfter      int               `yaml:"fail_after"`       // consecutive failures before an upstream rests
	FailFor        time.Duration     `yaml:"fail_for"`         // how long it rests; doubles with each further failure, up to 16 times
	CAFile         string            `yaml:"ca_file"`          // PEM certificates that verify https upstreams; absent: the system's
	MaxHeaderBytes int               `yaml:"max_header_bytes"` // of a response's status line and header, 4096 to 1048576; beyond: 502; each connection has such a buffer
	Upgrade        []string          `yaml:"upgrade"`          // the protocols that a connection may switch to; []: none
	TunnelTimeout  time.Duration     `yaml:"tunnel_timeout"`   // closes a switched connection when neither side sends anything
	Loop           string            `yaml:"loop"`             // the header that reveals loops, which get 508: via, off, or cdn-loop (RFC 8586) for origins that react to Via: nginx then compresses nothing unless gzip_proxied is set
	HealthCheck    proxy.HealthCheck `yaml:"health_check"`     // without path: none
	Groups         map[string]Group  `yaml:"groups"`           // by group name: its own health_check and upgrade, replacing those here; health_check: {} means none
}

// Group replaces fields of ForwardConfig for one group; nil: the same.
type Group struct {
	Upgrade     *[]string    `yaml:"upgrade"`
	HealthCheck *healthCheck `yaml:"health_check"`
}

// healthCheck takes the defaults, not upstream's values, for missing fields: an empty one checks nothing.
type healthCheck proxy.HealthCheck

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
