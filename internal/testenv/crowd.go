package testenv

import (
	"bufio"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Crowd opens n connections to an HTTP server, asks each for path twice, and returns how many
// answered the second time.
func Crowd(t testing.TB, addr, path string, n int) (answered int) {
	t.Helper()
	conns := make([]net.Conn, n)
	ask := func(c net.Conn) (answers int) {
		_, _ = io.WriteString(c, "GET "+path+" HTTP/1.1\r\nHost: "+addr+"\r\n\r\n") // it may be closed
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			return 0
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		return 1
	}
	for i := range conns {
		c, err := net.Dial("tcp", addr)
		require.NoError(t, err)
		defer c.Close()
		require.NoError(t, c.SetDeadline(time.Now().Add(Patience)))
		conns[i] = c
		ask(c) // at once: a server waits only seconds for a connection's first request
	}
	for _, c := range conns {
		answered += ask(c)
	}
	return answered
}

// HalfSent are connections to an HTTP server that have sent a request but for its end.
type HalfSent struct {
	t     testing.TB
	open  func() (net.Conn, error)
	begin string
	conns []*halfSent
	reads sync.WaitGroup
}

type halfSent struct {
	net.Conn
	closed chan struct{} // by the server
}

// SendHalf opens n connections to addr, by TLS if config is not nil, and sends begin on each.
func SendHalf(t testing.TB, addr string, config *tls.Config, begin string, n int) *HalfSent {
	t.Helper()
	h := &HalfSent{t: t, begin: begin, conns: make([]*halfSent, n), open: func() (net.Conn, error) {
		if config != nil {
			return tls.Dial("tcp", addr, config)
		}
		return net.Dial("tcp", addr)
	}}
	t.Cleanup(func() {
		for _, c := range h.conns {
			_ = c.Close()
		}
		h.reads.Wait()
	})
	for i := range h.conns {
		h.conns[i] = h.dial()
	}
	return h
}

func (h *HalfSent) dial() *halfSent {
	h.t.Helper()
	c, err := h.open()
	require.NoError(h.t, err)
	half := &halfSent{c, make(chan struct{})}
	_, _ = io.WriteString(c, h.begin) // it may be closed
	h.reads.Go(func() {
		_, _ = io.Copy(io.Discard, c)
		close(half.closed)
	})
	return half
}

// Drip sends another byte on each connection, and replaces those that the server has closed.
func (h *HalfSent) Drip() {
	h.t.Helper()
	for i, c := range h.conns {
		select {
		case <-c.closed:
			_ = c.Close()
			h.conns[i] = h.dial()
		default:
			_, _ = io.WriteString(c, "x") // it may be closed
		}
	}
}
