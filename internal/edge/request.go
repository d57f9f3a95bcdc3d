package edge

import (
	"bytes"
	"errors"
	"net"
	"net/netip"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/valyala/fasthttp"

	"github.com/weir-edge/weir/internal/edge/proxy"
	"github.com/weir-edge/weir/pkg/limiter"
	"github.com/weir-edge/weir/pkg/limiter/rules"
	"github.com/weir-edge/weir/pkg/shedder"
)

// request is one request on its way. It is pooled: nothing of it may be kept.
type request struct {
	edge    *Edge
	ctx     *fasthttp.RequestCtx
	running *ruleset
	began   time.Time

	peer    netip.Addr // the other end of the connection
	client  netip.Addr // who asks: the peer, or whom trusted proxies name
	trusted bool       // the peer is a trusted proxy
	tier    []byte

	group  *group // of upstreams; nil before admit
	permit shedder.Permit

	match    rules.Match
	scratch  rules.Match // for the class and the route
	decision limiter.Decision
	buf      []byte // scratch for headers and bodies

	// holders counts who still uses this request: the handler, and the body
	// of a response that streams on after it. The last one finishes it.
	holders atomic.Int32
	status  int
}

var _ rules.Request = (*request)(nil)

var errFragment = errors.New("the request target has a fragment")

// checkForm refuses a request that the origin might read in another way than the
// rules do.
func (r *request) checkForm() error {
	header := &r.ctx.Request.Header
	if err := proxy.CheckFraming(header); err != nil {
		return err
	}
	target := header.RequestURI()
	if bytes.IndexByte(target, '#') >= 0 {
		return errFragment
	}
	if bytes.HasPrefix(target, []byte("//")) {
		return parsePath(r.ctx.URI(), header.Host(), target)
	}
	return nil
}

// parsePath parses a request target that is a path. fasthttp by itself may take
// what follows two leading slashes for a host; an origin merges them.
func parsePath(u *fasthttp.URI, host, target []byte) error {
	for bytes.HasPrefix(target, []byte("//")) {
		target = target[1:]
	}
	return u.Parse(host, target)
}

// identify finds out who asks. Only the nearest address that no trusted proxy
// vouches for counts: whatever stands left of it, a client may have written.
func (r *request) identify() {
	r.peer = addrOf(r.ctx.RemoteAddr())
	r.client, r.trusted = r.peer, r.edge.isTrusted(r.peer)
	r.tier = nil
	if !r.trusted {
		return
	}
	if h := r.edge.config.TierHeader; h != "" {
		// Twice: the proxy added its own beside one that may be the client's.
		if tiers := r.ctx.Request.Header.PeekAll(h); len(tiers) == 1 {
			r.tier = tiers[0]
		}
	}
	hops := r.ctx.Request.Header.PeekAll(fasthttp.HeaderXForwardedFor)
	for i := len(hops) - 1; i >= 0; i-- {
		for rest := hops[i]; len(rest) > 0; {
			var hop []byte
			if comma := bytes.LastIndexByte(rest, ','); comma >= 0 {
				rest, hop = rest[:comma], rest[comma+1:]
			} else {
				rest, hop = nil, rest
			}
			a, ok := parseHop(bytes.TrimSpace(hop))
			if !ok {
				return // the proxy before it is the last one known
			}
			r.client = a
			if !r.edge.isTrusted(a) {
				return
			}
		}
	}
}

// parseHop reads an element of X-Forwarded-For: an address, perhaps with a port.
func parseHop(hop []byte) (netip.Addr, bool) {
	const longest = 64 // an IPv6 address with brackets, zone and port is shorter
	if len(hop) == 0 || len(hop) > longest {
		return netip.Addr{}, false
	}
	s := unsafe.String(unsafe.SliceData(hop), len(hop)) // not kept: a zone is copied, and then dropped
	if a, err := netip.ParseAddr(s); err == nil {
		return a.WithZone("").Unmap(), true
	}
	if ap, err := netip.ParseAddrPort(s); err == nil {
		return ap.Addr().WithZone("").Unmap(), true
	}
	return netip.Addr{}, false
}

func addrOf(a net.Addr) netip.Addr {
	if t, ok := a.(*net.TCPAddr); ok {
		addr, _ := netip.AddrFromSlice(t.IP)
		return addr.Unmap()
	}
	return netip.Addr{}
}

func (e *Edge) isTrusted(a netip.Addr) bool {
	for _, p := range e.config.trusted {
		if p.Contains(a) {
			return true
		}
	}
	return false
}

// The parts of a request that rules match and count by.

func (r *request) Client() netip.Addr { return r.client }
func (r *request) Host() []byte       { return r.ctx.Host() }
func (r *request) Path() []byte       { return r.ctx.Path() }
func (r *request) Method() []byte     { return r.ctx.Method() }
func (r *request) Tier() []byte       { return r.tier }
func (r *request) Trusted() bool      { return r.trusted }

func (r *request) Header(name string) ([]byte, int) {
	values := r.ctx.Request.Header.PeekAll(name)
	if len(values) == 0 {
		return nil, 0
	}
	return values[0], len(values)
}

func (r *request) Cookie(name string) (value []byte, n int) {
	for k, v := range r.ctx.Request.Header.Cookies() {
		if string(k) == name {
			if n++; n == 1 {
				value = v
			}
		}
	}
	return value, n
}

func (r *request) Query(name string) (value []byte, n int) {
	for k, v := range r.ctx.QueryArgs().All() {
		if string(k) == name {
			if n++; n == 1 {
				value = v
			}
		}
	}
	return value, n
}
