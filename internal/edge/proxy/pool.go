// Package proxy forwards a request that weir has admitted to one of several upstreams.
//
// It uses fasthttp's wire code on the caller's own request and response, so a small
// exchange costs no copy and no allocation. It keeps its own connections, because three
// things depend on knowing exactly how far an exchange got: whether a request may be sent
// again, whether a pause counts against the client or the upstream, and whether a
// connection may be reused.
//
// CONNECT is not supported: it is an error of KindUnsupported.
package proxy

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// maxUpstreams is the size of the set of upstreams that one request has tried.
const maxUpstreams = 64

// Config says where requests go and how long anything may take. A zero field means the
// default given next to it.
type Config struct {
	// Upstreams are 1 to 64 URLs of a host and an optional port, without a path: http or
	// https, or for HTTP/2 h2c (unencrypted) or h2 (with TLS).
	Upstreams []string

	DialTimeout   time.Duration // connect, and the TLS handshake; default 2 s
	Timeout       time.Duration // from sending the request to the response's headers; default 30 s
	StreamTimeout time.Duration // longest pause of either side during a body; default 60 s
	MinBodyRate   int           // bytes per second that a body must average after StreamTimeout; default 256
	IdleTimeout   time.Duration // how long an unused connection stays open; default 30 s
	MaxConns      int           // open connections to each upstream; default 1024

	// Upgrades are the protocols that a connection may switch to; none by default. See
	// upgradeTo. TunnelTimeout is the longest pause of both sides after the switch;
	// default 5 min.
	Upgrades      []string
	TunnelTimeout time.Duration

	Loop Loop // marks forwarded requests

	// MaxResponseHeaderBytes is also the read buffer of each connection;
	// default 16 KiB, at least 4 KiB.
	MaxResponseHeaderBytes int
	// MaxRequestBodyBytes is the limit for a request body, enforced even while a body
	// of unknown length is being sent. A streaming fasthttp server enforces no limit of
	// its own. Default: no limit.
	MaxRequestBodyBytes int64

	// FailAfter consecutive connect failures or timeouts make an upstream rest; default
	// 3. It rests for FailFor (default 5 s), then one request tries it; every failed
	// trial doubles the rest, up to 16 times FailFor.
	FailAfter int
	FailFor   time.Duration

	Check HealthCheck // for CheckHealth; complete if it has a path

	// TLS is cloned for https upstreams; nil verifies against the system's
	// roots and the upstream's host name.
	TLS *tls.Config

	Observer Observer // may be nil
}

// Observer receives the outcome of every attempt once: the time until the response's
// headers (a body of up to 16 KiB included), and KindNone for success. It is called on
// the request path, so it must be quick and safe for concurrent use.
type Observer interface {
	Upstream(d time.Duration, err Kind)
}

// StreamObserver is an Observer that is also notified of incomplete streamed response
// bodies: KindClient if the client stopped reading, otherwise the upstream's fault.
type StreamObserver interface {
	Stream(err Kind)
}

// UnsolicitedObserver is an Observer that is also notified when an upstream sends bytes that no
// request asked for. first says that it was trusted until now: for the next minute each of
// its requests gets a new connection.
type UnsolicitedObserver interface {
	Unsolicited(upstream string, first bool)
}

// Pool is a set of upstreams. Its methods are safe for concurrent use.
type Pool struct {
	cfg     Config
	epoch   time.Time // health and idle times count from here
	ups     []*upstream
	next    atomic.Uint32
	streams sync.Pool // *stream
	buffers sync.Pool // *[]byte of copySize
	tunnels tunnels
	done    chan struct{}
	sweeper sync.WaitGroup
	closing sync.Once
}

// URLError says which of Config.Upstreams is invalid.
type URLError struct {
	Index int
	URL   string
	Err   error
}

func (e *URLError) Error() string {
	return fmt.Sprintf("upstreams[%d].url %q: %v", e.Index, e.URL, e.Err)
}

func (e *URLError) Unwrap() error { return e.Err }

// New checks cfg and starts the pool. It does not connect yet.
func New(cfg Config) (*Pool, error) {
	if err := cfg.complete(); err != nil {
		return nil, err
	}
	p := &Pool{cfg: cfg, epoch: time.Now(), done: make(chan struct{})}
	p.streams.New = func() any { return new(stream) }
	p.buffers.New = func() any { b := make([]byte, copySize); return &b }
	var wrong error
	for i, raw := range cfg.Upstreams {
		u, err := p.newUpstream(raw)
		if err != nil {
			wrong = errors.Join(wrong, &URLError{i, raw, err})
		}
		p.ups = append(p.ups, u)
	}
	if wrong != nil {
		return nil, wrong
	}
	p.sweeper.Go(p.sweep)
	return p, nil
}

func (c *Config) complete() error {
	if n := len(c.Upstreams); n == 0 || n > maxUpstreams {
		return fmt.Errorf("upstreams: want 1 to %d, got %d", maxUpstreams, n)
	}
	for _, d := range []struct {
		name string
		v    *time.Duration
		zero time.Duration
	}{
		{"dial timeout", &c.DialTimeout, 2 * time.Second},
		{"timeout", &c.Timeout, 30 * time.Second},
		{"stream timeout", &c.StreamTimeout, 60 * time.Second},
		{"idle timeout", &c.IdleTimeout, 30 * time.Second},
		{"tunnel timeout", &c.TunnelTimeout, 5 * time.Minute},
		{"fail for", &c.FailFor, 5 * time.Second},
	} {
		if *d.v < 0 {
			return fmt.Errorf("%s %v: must not be negative", d.name, *d.v)
		}
		*d.v = cmp.Or(*d.v, d.zero)
	}
	for _, n := range []struct {
		name string
		v    *int
		zero int
	}{
		{"max connections", &c.MaxConns, 1024},
		{"max response header bytes", &c.MaxResponseHeaderBytes, 16 << 10},
		{"fail after", &c.FailAfter, 3},
		{"min body rate", &c.MinBodyRate, 256},
	} {
		if *n.v < 0 {
			return fmt.Errorf("%s %d: must not be negative", n.name, *n.v)
		}
		*n.v = cmp.Or(*n.v, n.zero)
	}
	c.MaxResponseHeaderBytes = max(c.MaxResponseHeaderBytes, 4<<10)
	return nil
}

// ParseURL parses one of Config.Upstreams, or says what is wrong with it.
func ParseURL(raw string) (*url.URL, error) {
	parsed, err := url.Parse(raw)
	switch {
	case !strings.Contains(raw, "://") && !strings.Contains(raw, "/"):
		return nil, fmt.Errorf("has no scheme; write http://%s", raw)
	case err != nil:
		return nil, errors.Unwrap(err) // the caller names the URL
	case portOf[parsed.Scheme] == "":
		return nil, errors.New("want http://, https:// or h2c://")
	case parsed.Hostname() == "":
		return nil, errors.New("want a host")
	case parsed.User != nil:
		return nil, errors.New("want no user")
	case parsed.Path != "" && parsed.Path != "/", parsed.RawQuery != "" || parsed.ForceQuery, parsed.Fragment != "":
		return nil, errors.New("want no path, query or fragment: requests keep their own")
	}
	return parsed, nil
}

func (p *Pool) newUpstream(raw string) (*upstream, error) {
	parsed, err := ParseURL(raw)
	if err != nil {
		return nil, err
	}
	u := &upstream{cfg: &p.cfg, epoch: p.epoch}
	if parsed.Scheme == "https" || parsed.Scheme == schemeH2 {
		u.tls = p.cfg.TLS.Clone() // nil stays nil
		if u.tls == nil {
			u.tls = &tls.Config{MinVersion: tls.VersionTLS12}
		}
		u.tls.ServerName = cmp.Or(u.tls.ServerName, parsed.Hostname())
	}
	u.addr = net.JoinHostPort(parsed.Hostname(), cmp.Or(parsed.Port(), portOf[parsed.Scheme]))
	if parsed.Scheme == schemeH2C || parsed.Scheme == schemeH2 {
		u.http2, err = u.newHTTP2()
	}
	return u, err
}

// Host returns the host of requests without one: the first upstream's address.
func (p *Pool) Host() string { return p.ups[0].addr }

// portOf is the default for each scheme.
var portOf = map[string]string{"http": "80", "https": "443", schemeH2C: "80", schemeH2: "443"}

// Close closes idle connections and tunnels at once, and busy ones when their exchange
// ends; a later Forward fails with KindUnavailable.
func (p *Pool) Close() {
	p.closing.Do(func() {
		close(p.done)
		for _, u := range p.ups {
			u.close()
		}
	})
	p.DrainTunnels(0)
	p.sweeper.Wait()
}

// sweep closes connections that have been idle too long.
func (p *Pool) sweep() {
	tick := time.NewTicker(max(p.cfg.IdleTimeout/2, time.Millisecond))
	defer tick.Stop()
	for {
		select {
		case <-p.done:
			return
		case <-tick.C:
			for _, u := range p.ups {
				u.sweep(time.Since(p.epoch))
			}
		}
	}
}

// pick chooses an upstream that is not in tried: the less busy of the next two that are not
// resting. An upstream whose rest is over is chosen immediately, by one request. One that
// fails its checks is chosen only if no other is left: then one that is not resting, else
// the one whose rest ends first, since an attempt costs less than an outage. It returns -1
// when all have been tried.
func (p *Pool) pick(tried uint64, now time.Duration) (i int, trial bool) {
	n := len(p.ups)
	if n == 1 {
		if tried != 0 {
			return -1, false
		}
		return 0, p.ups[0].health.claim(now)
	}
	start := int(p.next.Add(1) % uint32(n))
	best, failing, soonest := -1, -1, -1
	for k := range n {
		i := (start + k) % n
		if tried&(1<<i) != 0 {
			continue
		}
		u := p.ups[i]
		if u.health.resting(now) {
			if soonest < 0 || u.health.until.Load() < p.ups[soonest].health.until.Load() {
				soonest = i
			}
			continue
		}
		if u.health.down.Load() {
			if failing < 0 {
				failing = i
			}
			continue
		}
		if u.health.claim(now) {
			return i, true
		}
		if best < 0 {
			best = i
			continue
		}
		if u.busy.Load() < p.ups[best].busy.Load() {
			best = i
		}
		break
	}
	if best < 0 {
		best = failing
	}
	if best < 0 {
		best = soonest
	}
	return best, false
}
