package listeners

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"time"

	"github.com/weir-edge/weir/internal/edge/handshake"
	"github.com/weir-edge/weir/internal/httpconns"
)

// stopAdmin is how long the last answers of the admin side may take.
const stopAdmin = 500 * time.Millisecond

// admin is the listener for operators.
func admin(c *Config, m *metrics) *listener {
	server := httpconns.New(c.Admin)
	server.ErrorLog = slog.NewLogLogger(c.Log.Handler(), slog.LevelDebug)
	l := &listener{
		name: "admin", address: c.Listen.Admin, certificates: c.Certificates.Admin,
		serve: func(ln net.Listener) error {
			if err := server.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
				return err
			}
			return nil
		},
		close: func() {
			ctx, cancel := context.WithTimeout(context.Background(), stopAdmin)
			defer cancel()
			if server.Shutdown(ctx) != nil {
				_ = server.Close()
			}
		},
	}
	if l.certificates != nil { // httpconns bounds the connections whose handshake is complete
		l.over = func(ln net.Listener) net.Listener {
			return handshake.Listen(ln, handshake.Config{
				TLS: l.certificates.Config(), Callers: 2 * httpconns.Most, Pending: httpconns.Max,
				Identify: func(netip.Addr, *tls.ConnectionState) (func(), bool) { return nil, true },
				Refused:  func(handshake.Refusal) {}, Failed: m.handshakes("admin"),
			})
		}
	}
	return l
}
