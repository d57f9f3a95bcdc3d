package proxy

import (
	"crypto/tls"
	"net"
	"time"

	"github.com/valyala/fasthttp"
	"golang.org/x/net/http2"

	"github.com/weir-edge/weir/internal/edge/lazy"
)

// prefaceConn is a connection whose first bytes select the protocol. It has the methods of
// a TLS connection, because fasthttp asks those which protocol they have negotiated.
type prefaceConn struct {
	clientConn
	first *firstBytes
	http2 bool
}

// Handshake reads until the bytes differ from the preface of HTTP/2, or are all of it.
func (c *prefaceConn) Handshake() error {
	c.handshake()
	var buf [len(http2.ClientPreface)]byte
	n := 0
	for n < len(buf) && string(buf[:n]) == http2.ClientPreface[:n] {
		m, err := c.Conn.Read(buf[n:])
		if n += m; err != nil {
			c.first.err = err
			break
		}
	}
	c.phase.arrived()
	if c.http2 = string(buf[:n]) == http2.ClientPreface; !c.http2 {
		c.first.bytes = append([]byte(nil), buf[:n]...)
	}
	return nil
}

// ConnectionState reports the protocol.
func (c *prefaceConn) ConnectionState() (state tls.ConnectionState) {
	if c.http2 {
		state.NegotiatedProtocol = http2.NextProtoTLS
	}
	return state
}

// Encrypted reports that this is not a TLS connection, despite its methods.
func (c *prefaceConn) Encrypted() bool { return false }

// firstBytes replays what was already read from a connection, and the error that followed.
type firstBytes struct {
	net.Conn
	bytes []byte
	err   error
}

func (c *firstBytes) Read(b []byte) (int, error) {
	if n := copy(b, c.bytes); n > 0 {
		if c.bytes = c.bytes[n:]; len(c.bytes) == 0 {
			c.bytes = nil
		}
		return n, nil
	}
	if err := c.err; err != nil && len(b) > 0 {
		c.err = nil
		return 0, err
	}
	return c.Conn.Read(b)
}

// CloseWrite ends the sending half.
func (c *firstBytes) CloseWrite() error { return lazy.CloseWrite(c.Conn) }

// UnwrapForNextProto returns what a NextProto handler serves in place of a connection of this package's
// listeners, which parse HTTP/1.1. prefaced says that the preface has been read from it.
func UnwrapForNextProto(c net.Conn) (bare net.Conn, prefaced bool) {
	switch c := c.(type) {
	case *tlsClientConn:
		_ = c.SetDeadline(time.Time{})
		return c.tls, false
	case *prefaceConn:
		_ = c.SetDeadline(time.Time{})
		return c.first.Conn, true
	}
	return c, false
}

// IsTLS reports whether the client's connection is encrypted.
func IsTLS(ctx *fasthttp.RequestCtx) bool {
	if c, ok := ctx.Conn().(interface{ Encrypted() bool }); ok {
		return c.Encrypted()
	}
	return ctx.IsTLS()
}
