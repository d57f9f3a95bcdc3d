package proxy

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"

	"github.com/weir-edge/weir/internal/edge/lazy"
)

// within serves a handler on a listener with timeouts, and returns a function that connects.
func within(t *testing.T, limits Timeouts, handle fasthttp.RequestHandler) func() net.Conn {
	t.Helper()
	return observed(t, limits, handle, nil)
}

// observed is within, and reports the states of connections.
func observed(t *testing.T, limits Timeouts, handle fasthttp.RequestHandler, state func(net.Conn, fasthttp.ConnState)) func() net.Conn {
	t.Helper()
	server := &fasthttp.Server{
		Handler:           func(ctx *fasthttp.RequestCtx) { defer CloseUnlessReusable(ctx, true); handle(ctx) },
		StreamRequestBody: true, CloseOnShutdown: true, Logger: quiet{}, ConnState: state,
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	served := make(chan error, 1)
	go func() { served <- server.Serve(limits.Listen(ln)) }()
	t.Cleanup(func() {
		require.NoError(t, server.Shutdown())
		require.NoError(t, <-served)
	})
	return func() net.Conn {
		c, err := net.Dial("tcp", ln.Addr().String())
		require.NoError(t, err)
		t.Cleanup(func() { c.Close() })
		require.NoError(t, c.SetDeadline(time.Now().Add(patience)))
		return c
	}
}

// ends reads until the server closes the connection, and returns what came.
func ends(c net.Conn) string {
	text, _ := io.ReadAll(c) // a connection that is closed with bytes unread is reset
	return string(text)
}

// drip sends a part each 20 ms, until the connection ends.
func drip(c net.Conn, part string) {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for range tick.C {
		if _, err := io.WriteString(c, part); err != nil {
			return
		}
	}
}

const long = 10 * patience // longer than patience: a timeout that must not matter

func TestTimeoutsEndConnections(t *testing.T) {
	const d = 2 * time.Second // pauses are far shorter, also those of a busy machine
	answer := func(ctx *fasthttp.RequestCtx) {
		if body := ctx.RequestBodyStream(); body != nil {
			if _, err := io.Copy(io.Discard, body); err != nil {
				ctx.SetConnectionClose()
			}
		}
		ctx.SetBodyString("answer")
	}
	for name, f := range map[string]struct {
		limits Timeouts
		send   string
		drip   string
		want   string // in what comes before the end
	}{
		"no request begins":                 {Timeouts{long, d, long}, "", "", ""},
		"the next request does not begin":   {Timeouts{d, long, long}, "GET / HTTP/1.1\r\nHost: a\r\n\r\n", "", "answer"},
		"blank lines are no request":        {Timeouts{d, long, long}, "GET / HTTP/1.1\r\nHost: a\r\n\r\n", "\r\n", "answer"},
		"a request line that drips":         {Timeouts{long, d, long}, "GET /", "a", " 4"},
		"a header that drips":               {Timeouts{long, d, long}, "GET / HTTP/1.1\r\nHost: a\r\n", "X-A: b\r\n", " 4"},
		"the second request's header drips": {Timeouts{long, d, long}, "GET / HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\r\n", "X-A: b\r\n", "answer"},
		"a body that drips":                 {Timeouts{long, d, long}, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n", "a", ""},
		"chunks that drip":                  {Timeouts{long, d, long}, "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n", "1\r\na\r\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			began := time.Now() // before the server can begin to wait
			c := within(t, f.limits, answer)()
			_, err := io.WriteString(c, f.send)
			require.NoError(t, err)
			if f.drip != "" {
				go drip(c, f.drip)
			}
			text := ends(c)
			took := time.Since(began)
			require.Contains(t, text, f.want)
			require.GreaterOrEqual(t, took, d-10*time.Millisecond, "not earlier than it says")
			require.Less(t, took, patience, "and not for ever")
		})
	}
}

// A client that does not read its answer loses the connection after Write.
func TestTimeoutsEndUnreadAnswers(t *testing.T) {
	body := bytes.Repeat([]byte("a"), 64<<20) // more than the kernel buffers
	closed := make(chan struct{})
	c := observed(t, Timeouts{long, long, 300 * time.Millisecond}, func(ctx *fasthttp.RequestCtx) { ctx.Response.SetBodyRaw(body) },
		func(_ net.Conn, s fasthttp.ConnState) {
			if s == fasthttp.StateClosed {
				close(closed)
			}
		})()
	_, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	require.NoError(t, err)
	select {
	case <-closed: // nothing is read meanwhile
	case <-time.After(patience):
		require.Fail(t, "the connection lasts")
	}
	text := ends(c)
	require.NotEmpty(t, text)
	require.Less(t, len(text), len(body))
}

// Each request and each answer has its whole time, however long the ones before took.
func TestTimeoutsBeginAnew(t *testing.T) {
	const d = 2 * time.Second // pauses are far shorter, also those of a busy machine
	connect := within(t, Timeouts{d, d, d}, func(ctx *fasthttp.RequestCtx) {
		if ctx.QueryArgs().Has("slow") {
			<-time.After(3 * d / 2) // longer than any timeout
		}
		ctx.SetBodyString("answer")
	})
	const slow, quick = "GET /?slow HTTP/1.1\r\nHost: a\r\n\r\n", "GET / HTTP/1.1\r\nHost: a\r\n\r\n"

	t.Run("one after the other", func(t *testing.T) {
		t.Parallel()
		c := connect()
		r := bufio.NewReader(c)
		for range 2 {
			for _, request := range []string{slow, quick} {
				_, err := io.WriteString(c, request)
				require.NoError(t, err)
				answered(t, r)
				<-time.After(d / 4) // idle, for less than is allowed
			}
		}
	})
	t.Run("in one piece", func(t *testing.T) {
		t.Parallel()
		c := connect()
		_, err := io.WriteString(c, quick+slow+slow+quick)
		require.NoError(t, err)
		r := bufio.NewReader(c)
		for range 4 {
			answered(t, r)
		}
	})
	t.Run("after 100 Continue", func(t *testing.T) {
		t.Parallel()
		c := connect()
		_, err := io.WriteString(c, strings.Replace(slow, "GET", "POST", 1)[:len(slow)-1]+"Content-Length: 1\r\nExpect: 100-continue\r\n\r\n")
		require.NoError(t, err)
		r := bufio.NewReader(c)
		line, err := r.ReadString('\n')
		require.NoError(t, err)
		require.Contains(t, line, " 100 ")
		_, err = r.ReadString('\n')
		require.NoError(t, err)
		_, err = io.WriteString(c, "a")
		require.NoError(t, err)
		answered(t, r)
	})
}

// watched is a client's connection that notes its deadlines.
type watched struct {
	net.Conn
	requests    io.Reader
	read, write time.Time
	beforeRead  func()
}

func (c *watched) Read(b []byte) (int, error)         { c.beforeRead(); return c.requests.Read(b) }
func (c *watched) Write(b []byte) (int, error)        { return len(b), nil }
func (c *watched) SetReadDeadline(t time.Time) error  { c.read = t; return nil }
func (c *watched) SetWriteDeadline(t time.Time) error { c.write = t; return nil }
func (c *watched) SetDeadline(t time.Time) error      { c.read, c.write = t, t; return nil }

func requestOn(c net.Conn) *fasthttp.RequestCtx {
	ctx := &fasthttp.RequestCtx{}
	ctx.Init2(c, quiet{}, false)
	return ctx
}

// While TLS is read, it may write as long as it may be read; an answer has its own time.
func TestReadingTLSMayWrite(t *testing.T) {
	const request = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nab"
	inner := &watched{requests: iotest.OneByteReader(strings.NewReader(request + request))}
	inner.beforeRead = func() { require.Equal(t, inner.read, inner.write) }
	timeouts := Timeouts{Idle: 2 * time.Hour, Read: time.Hour, Write: time.Minute}
	c := clientConn{Conn: inner, listener: &Listener{}, limits: &limits{timeouts, lazy.NewClock()}, readWrites: true, due: deadlines{readFor: noStage}}
	defer c.limits.close()
	ctx := requestOn(&c)
	for range 2 {
		for range request {
			_, err := c.Read(make([]byte, 1))
			require.NoError(t, err)
		}
		require.NoError(t, c.SetReadDeadline(time.Now().Add(3*time.Hour))) // as an upload does
		require.Equal(t, inner.read, inner.write)
		_, err := c.Write([]byte("answer"))
		require.NoError(t, err)
		require.Less(t, time.Until(inner.write), 2*time.Minute)
		CloseUnlessReusable(ctx, true)
	}
}

// The same for requests that each arrive whole, several within a tick of the clock.
func TestReadingTLSMayWriteWithinATick(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const request = "GET / HTTP/1.1\r\nHost: a\r\n\r\n"
		inner := &watched{}
		inner.beforeRead = func() {
			require.Equal(t, inner.read, inner.write)
			inner.requests = strings.NewReader(request)
		}
		timeouts := Timeouts{Idle: 2 * time.Hour, Read: time.Hour, Write: time.Minute}
		c := clientConn{Conn: inner, listener: &Listener{}, limits: &limits{timeouts, lazy.NewClock()}, readWrites: true, due: deadlines{readFor: noStage}}
		defer c.limits.close()
		ctx := requestOn(&c)
		for range 4 {
			_, err := c.Read(make([]byte, len(request)))
			require.NoError(t, err)
			_, err = c.Write([]byte("answer"))
			require.NoError(t, err)
			require.Less(t, time.Until(inner.write), 2*time.Minute)
			CloseUnlessReusable(ctx, true)
		}
	})
}

func answered(t *testing.T, r *bufio.Reader) {
	t.Helper()
	resp, err := http.ReadResponse(r, nil)
	require.NoError(t, err)
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.Equal(t, "answer", string(text))
}

// BenchmarkDeadlines measures what the timeouts of a connection cost one request.
func BenchmarkDeadlines(b *testing.B) {
	l := &limits{Timeouts: Timeouts{Idle: time.Minute, Read: 10 * time.Second, Write: 10 * time.Second}, clock: lazy.NewClock()}
	defer l.close()
	end, other := net.Pipe()
	defer end.Close()
	defer other.Close()
	c := &clientConn{Conn: &lazy.Conn{Conn: end}, listener: &Listener{}, limits: l, due: deadlines{readFor: noStage}}
	request, ctx := []byte("GET / HTTP/1.1\r\nHost: a\r\n\r\n"), requestOn(c)
	for b.Loop() {
		if c.beforeRead() != nil || c.beforeWrite() != nil {
			b.Fatal("a deadline could not be set")
		}
		_, _ = c.lines.follow(request)
		CloseUnlessReusable(ctx, true)
	}
}
