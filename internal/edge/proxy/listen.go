package proxy

import (
	"crypto/tls"
	"io"
	"net"
)

// Listen wraps the listener of the server that calls Forward, outside of TLS:
// Listen(tls.NewListener(ln, cfg)).
//
// fasthttp reports the end of a chunked request body and a client that hung up
// between two of its chunks by the same io.EOF. A connection of this listener
// remembers which it was; without it such an upload, cut short, would reach
// the upstream as if it were whole.
func Listen(ln net.Listener) net.Listener { return listener{ln} }

type listener struct{ net.Listener }

// Accept wraps the next connection.
func (l listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	if tc, ok := c.(*tls.Conn); ok {
		return &tlsClientConn{clientConn{Conn: tc}, tc}, nil
	}
	return &clientConn{Conn: c}, nil
}

// ender is a connection of Listen.
type ender interface{ hungUp() bool }

// clientConn is read and asked by the one goroutine that serves it.
type clientConn struct {
	net.Conn
	ended bool
}

// Read remembers the end.
func (c *clientConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.ended = c.ended || err == io.EOF
	return n, err
}

func (c *clientConn) hungUp() bool { return c.ended }

// tlsClientConn has the two methods by which fasthttp knows TLS.
type tlsClientConn struct {
	clientConn
	tls *tls.Conn
}

func (c *tlsClientConn) Handshake() error                     { return c.tls.Handshake() }
func (c *tlsClientConn) ConnectionState() tls.ConnectionState { return c.tls.ConnectionState() }
