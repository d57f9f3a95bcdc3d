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
	"github.com/weir-edge/weir/pkg/paths"
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
	form    proxy.Form
	tier    []byte

	paths paths.Readings
	path  []byte        // the reading in question
	query []byte        // until it is parsed
	args  fasthttp.Args // the query, once it was asked for

	group  *group // of upstreams; nil before route
	permit shedder.Permit

	match    rules.Match
	others   comparison
	scratch  rules.Match  // for the class and the route
	look     limiter.Look // of the memory of refusals
	decision limiter.Decision
	buf      []byte // scratch for headers and bodies

	// holders counts who still uses this request: the handler, and the body
	// of a response that streams on after it. The last one finishes it.
	holders atomic.Int32
	status  int
	line    []byte // for the access log
}

var _ rules.Request = (*request)(nil)

var (
	methodTrace = []byte("TRACE")
	methodTrack = []byte("TRACK")

	errVersion = errors.New("only HTTP/1.1 and HTTP/1.0 are spoken here")
	errExpect  = errors.New("the only expectation met here is 100-continue")
	errTrace   = errors.New("TRACE is not supported: its answer would show cookies to scripts")
)

// checkForm refuses a request that the origin might read in another way than the
// rules do.
func (r *request) checkForm() error {
	var err error
	if r.form, err = proxy.CheckFraming(&r.ctx.Request.Header); err != nil {
		return err
	}
	switch h := &r.ctx.Request.Header; {
	case !h.IsHTTP11() && string(h.Protocol()) != "HTTP/1.0":
		return errVersion
	case r.form.Demands() && h.IsHTTP11():
		return errExpect
	case bytes.EqualFold(h.Method(), methodTrace), bytes.EqualFold(h.Method(), methodTrack):
		return errTrace
	}
	return r.readTarget()
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

// The parts of a request that rules match and count by.

func (r *request) Client() netip.Addr { return r.client }
func (r *request) Host() []byte       { return r.ctx.Request.Header.Host() }
func (r *request) Path() []byte       { return r.path }
func (r *request) Method() []byte     { return r.ctx.Method() }
func (r *request) Tier() []byte       { return r.tier }
func (r *request) Trusted() bool      { return r.trusted }

func (r *request) readAs(path []byte) { r.path = path }

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
	if r.query != nil {
		r.args.ParseBytes(r.query)
		r.query = nil
	}
	for k, v := range r.args.All() {
		if string(k) == name {
			if n++; n == 1 {
				value = v
			}
		}
	}
	return value, n
}
