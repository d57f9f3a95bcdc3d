package edge

import (
	"net"
	"net/netip"
	"slices"
	"sync/atomic"

	"github.com/valyala/fasthttp"

	"github.com/weir-edge/weir/internal/edge/gateway"
	"github.com/weir-edge/weir/internal/edge/proxy"
)

// maxStrangers is how many connections from outside listen.decide.from may be open: enough to
// tell a gateway that is missing there what to do.
const maxStrangers = 64

// gatewayConns bounds the open connections of listen.decide, beneath TLS: fasthttp itself would
// answer 503 after the handshake, which it awaits without a deadline while it accepts no one else.
// Those of strangers take no room from gateways.
type gatewayConns struct {
	net.Listener
	from    []netip.Prefix // nil: any
	most    int64          // from there
	refused func(gateway.Answer)

	known, strangers atomic.Int64
}

// changed is a fasthttp.Server's ConnState.
func (l *gatewayConns) changed(c net.Conn, state fasthttp.ConnState) {
	open := &l.known
	if l.strange(c) {
		open = &l.strangers
	}
	switch state {
	case fasthttp.StateNew:
		open.Add(1)
	case fasthttp.StateClosed:
		open.Add(-1)
	}
}

func (l *gatewayConns) strange(c net.Conn) bool {
	peer := proxy.AddrOf(c.RemoteAddr())
	return l.from != nil && !slices.ContainsFunc(l.from, func(p netip.Prefix) bool { return p.Contains(peer) })
}

// Accept returns the next connection for which there is room, and closes others.
func (l *gatewayConns) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		switch strange := l.strange(c); {
		case strange && l.strangers.Load() >= maxStrangers:
			l.refused(gateway.Stranger)
		case !strange && l.known.Load() >= l.most:
			l.refused(gateway.Failed)
		default:
			return c, nil
		}
		_ = c.Close()
	}
}
