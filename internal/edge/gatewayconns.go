package edge

import (
	"time"

	"github.com/weir-edge/weir/internal/edge/config"
	"github.com/weir-edge/weir/internal/edge/gateway"
	"github.com/weir-edge/weir/internal/edge/handshake"
	"github.com/weir-edge/weir/internal/edge/listeners"
	"github.com/weir-edge/weir/pkg/certs"
)

const questionBytes = listeners.QuestionBytes

// gatewayConns bounds the connections of HAProxys.
func (e *Edge) gatewayConns(listener string, d *config.Decide, s *certs.Server, unauthenticated int, count func(gateway.Answer, time.Duration)) handshake.Config {
	return e.listeners.GatewayConns(listener, d, s, unauthenticated, count)
}
