package proxy

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"
)

// A listener that drains closes connections on which no request has begun, and no others; these
// close behind their answer.
func TestDrainClosesOnlyIdleConnections(t *testing.T) {
	hold, ended := make(chan struct{}), make(chan error, 2)
	server := &fasthttp.Server{StreamRequestBody: true, Logger: quiet{}, Handler: func(ctx *fasthttp.RequestCtx) {
		defer CloseUnlessReusable(ctx, true)
		if string(ctx.Path()) == "/held" {
			<-hold
		}
	}}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	l := Timeouts{Idle: patience, Read: patience, Write: patience}.Listen(ln)
	go func() { ended <- server.Serve(l) }()
	dial := func() (net.Conn, *bufio.Reader) {
		c, err := net.Dial("tcp", ln.Addr().String())
		require.NoError(t, err)
		t.Cleanup(func() { c.Close() })
		require.NoError(t, c.SetDeadline(time.Now().Add(patience)))
		return c, bufio.NewReader(c)
	}
	send := func(c net.Conn, text string) {
		_, err := io.WriteString(c, text)
		require.NoError(t, err)
	}
	answered := func(r *bufio.Reader, close bool) {
		t.Helper()
		resp, err := http.ReadResponse(r, nil)
		require.NoError(t, err)
		require.Equal(t, close, resp.Close)
		_, err = io.Copy(io.Discard, resp.Body)
		require.NoError(t, err)
	}
	closed := func(r *bufio.Reader) {
		t.Helper()
		_, err := r.ReadByte()
		require.ErrorIs(t, err, io.EOF)
	}
	const request = "GET / HTTP/1.1\r\nHost: a\r\n\r\n"
	_, fresh := dial()
	kept, idle := dial()
	begun, half := dial()
	asked, held := dial()
	leaving, last := dial()
	for c, r := range map[net.Conn]*bufio.Reader{kept: idle, begun: half, asked: held, leaving: last} {
		send(c, request)
		answered(r, false)
	}
	send(begun, request[:20])
	send(asked, "GET /held HTTP/1.1\r\nHost: a\r\n\r\n")
	l.Leave()
	send(leaving, request)
	answered(last, true)
	closed(last)

	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	go func() { ended <- l.Drain(ctx) }()
	closed(idle)
	closed(fresh)
	require.NoError(t, <-ended, "Serve")
	send(begun, request[20:])
	answered(half, true)
	closed(half)
	require.Empty(t, ended, "a request is held")
	close(hold)
	answered(held, true)
	closed(held)
	require.NoError(t, <-ended, "Drain")
	require.Empty(t, l.open)
}
