package edge

import (
	"context"
	"fmt"
	"net"
	"runtime/debug"
	"strings"

	"github.com/weir-edge/weir/internal/bind"
	"github.com/weir-edge/weir/internal/edge/handshake"
	"github.com/weir-edge/weir/internal/edge/listeners"
	"github.com/weir-edge/weir/internal/edge/spoe"
)

// spoeServer is the listener for HAProxy's SPOE; the zero value has none.
type spoeServer struct {
	listener net.Listener
	server   *spoe.Server
}

// haproxyFrame is the longest frame that an HAProxy with its default buffers sends. A
// smaller bound would let clients send headers that HAProxy cannot describe.
const haproxyFrame = 16 << 10

// openSPOE listens, if the configuration says so.
func (e *Edge) openSPOE() (s spoeServer, err error) {
	d := e.config.Listen.SPOE
	if d == nil {
		return s, nil
	}
	ln, err := bind.TCP(d.Address)
	if err != nil {
		return s, fmt.Errorf("listen.spoe: %w", err)
	}
	count := e.metrics.gateways("spoe")
	s.listener = handshake.Listen(ln, e.listeners.GatewayConns("spoe", d, e.files.SPOE, 0, count))
	c := &e.config.Server
	config := spoe.Config{
		Decider: &e.decider, Legacy: e.config.LegacyHeaders,
		MaxFrame:    max(haproxyFrame, c.MaxHeaderBytes+listeners.AuthRequestBytes),
		ReadTimeout: c.ReadTimeout, IdleTimeout: c.IdleTimeout,
		Answered: count,
		Panicked: func(panicked any) {
			e.log.Error("handler panicked", "panic", panicked, "stack", strings.TrimSpace(string(debug.Stack())))
			e.metrics.panics.Inc()
		},
	}
	s.server = spoe.New(config)
	return s, nil
}

// serve answers until drain.
func (s spoeServer) serve() error {
	if s.server == nil {
		return nil
	}
	return s.server.Serve(s.listener)
}

// leave makes HAProxys ask elsewhere, one connection after the other.
func (s spoeServer) leave() {
	if s.server != nil {
		s.server.Leave()
	}
}

// drain ends what is left. It reports whether the last requests were answered.
func (s spoeServer) drain(ctx context.Context) bool {
	if s.server == nil {
		return true
	}
	_ = s.listener.Close()
	return s.server.Drain(ctx)
}
