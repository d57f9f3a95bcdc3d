package proxy

//lint:file-ignore SA1019 http.Transport dials for every request that finds no connection; see TestConcurrentRequestsShareAConnection

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"golang.org/x/net/http2"
)

// The schemes of upstreams that speak only HTTP/2: unencrypted, and with TLS.
const (
	schemeH2C = "h2c"
	schemeH2  = "h2"
)

const (
	// http2Window is how much of a response an upstream may send ahead of the client that reads
	// it. A connection's window holds that of as many streams as it may have, up to the largest
	// window that there is: a client that does not read must not stop the others' responses.
	http2Window  = 128 << 10
	http2Streams = 16_000
	// http2Quiet is how long a connection with open streams may be silent before the
	// upstream must answer a ping, within http2Ping.
	http2Quiet = 15 * time.Second
	http2Ping  = 5 * time.Second
)

// dialError is a failure to make a connection, so that nothing of a request was sent.
type dialError struct{ error }

func (e dialError) Unwrap() error { return e.error }

var errNoHTTP2 = errors.New("the upstream does not negotiate HTTP/2 (h2) by ALPN")

// http2Transport is the connections to an upstream.
type http2Transport interface {
	http.RoundTripper
	CloseIdleConnections()
}

// newHTTP2 returns the connections to an upstream that speaks HTTP/2: as many as its limit
// of concurrent streams requires.
func (u *upstream) newHTTP2() (http2Transport, error) {
	// Only a transport that belongs to one of net/http has adjustable windows. It gets its
	// own connection pool, as if it belonged to none.
	t, err := http2.ConfigureTransports(&http.Transport{
		DisableCompression: true, IdleConnTimeout: u.cfg.IdleTimeout,
		HTTP2: &http.HTTP2Config{MaxReceiveBufferPerStream: http2Window, MaxReceiveBufferPerConnection: http2Window * min(u.cfg.MaxConns, http2Streams)},
	})
	if err != nil {
		return nil, err
	}
	t.ConnPool = nil
	t.AllowHTTP, t.DisableCompression = true, true
	t.MaxHeaderListSize = uint32(u.cfg.MaxResponseHeaderBytes)
	t.ReadIdleTimeout, t.PingTimeout, t.WriteByteTimeout = http2Quiet, http2Ping, u.cfg.StreamTimeout
	t.DialTLSContext = func(ctx context.Context, _, _ string, _ *tls.Config) (net.Conn, error) {
		c, err := u.dialHTTP2(ctx)
		if err != nil {
			return nil, dialError{err}
		}
		return c, nil
	}
	return t, nil
}

func (u *upstream) dialHTTP2(ctx context.Context) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, u.cfg.DialTimeout)
	defer cancel()
	d := net.Dialer{KeepAlive: 30 * time.Second}
	c, err := d.DialContext(ctx, "tcp", u.addr)
	if err != nil || u.tls == nil {
		return c, err
	}
	config := u.tls.Clone()
	config.NextProtos = []string{http2.NextProtoTLS}
	secure := tls.Client(c, config)
	if err = secure.HandshakeContext(ctx); err == nil && secure.ConnectionState().NegotiatedProtocol != http2.NextProtoTLS {
		err = errNoHTTP2
	}
	if err != nil {
		_ = c.Close()
		return nil, fmt.Errorf("tls: %w", err)
	}
	return secure, nil
}

// urlScheme returns the scheme that the http2 package expects.
func (u *upstream) urlScheme() string {
	if u.tls != nil {
		return "https"
	}
	return "http"
}
