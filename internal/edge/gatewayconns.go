package edge

import (
	"crypto/tls"
	"net/netip"
	"time"

	"github.com/weir-edge/weir/internal/edge/config"
	"github.com/weir-edge/weir/internal/edge/gateway"
	"github.com/weir-edge/weir/internal/edge/handshake"
	"github.com/weir-edge/weir/pkg/certs"
)

// maxStrangers is how many connections of strangers to listen.decide may be open: enough to tell
// a gateway that is missing in from, or has no certificate, what to do.
const maxStrangers = 64

// gatewayConns bounds the connections of a listener for gateways, so that strangers take no room
// from those that from and client_ca_file describe.
func (e *Edge) gatewayConns(listener string, d *config.Decide, s *certs.Server, strangers int, count func(gateway.Answer, time.Duration)) handshake.Config {
	c := handshake.Config{
		From: d.Gateways, Callers: e.config.Server.MaxConnections, Strangers: strangers,
		Refused: func(why handshake.Refusal) {
			if why == handshake.Stranger {
				count(gateway.Stranger, 0)
			} else {
				count(gateway.Failed, 0)
			}
		},
	}
	if s == nil {
		return c
	}
	c.TLS, c.Failed = s.Config(), e.metrics.handshakes(listener)
	if d.TLS.ClientCAFile != "" {
		c.Knows = func(_ netip.Addr, state *tls.ConnectionState) (func(), bool) { return nil, s.Vouches(state) }
	}
	return c
}
