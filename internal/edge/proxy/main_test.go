package proxy

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"
	"go.uber.org/goleak"

	"github.com/weir-edge/weir/internal/testenv"
)

func TestMain(m *testing.M) {
	// fasthttp's clock for the Date header runs as long as the process; the cleaner of
	// a stopped server finishes its ten-second sleep.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.(*workerPool).Start.func2"),
		// The bare proxy of the benchmark.
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.(*HostClient).connsCleaner"),
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.updateServerDate.func1"))
}

const patience = testenv.Patience

// limitFor returns a limit that only what is to time out reaches.
func limitFor(want Kind) time.Duration {
	if want == KindTimeout {
		return 100 * time.Millisecond
	}
	return patience
}

// outcomes records what the pool and the requests report.
type outcomes struct {
	mu       sync.Mutex
	attempts []Kind
	streams  []Kind
	unasked  []bool // for each, whether it was the first
	finished atomic.Int32
	ended    chan struct{} // one per finished exchange
	errs     chan *Error
}

func newOutcomes() *outcomes {
	return &outcomes{ended: make(chan struct{}, 1000), errs: make(chan *Error, 1000)}
}

func (o *outcomes) Upstream(_ time.Duration, k Kind) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.attempts = append(o.attempts, k)
}

func (o *outcomes) Stream(k Kind) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.streams = append(o.streams, k)
}

func (o *outcomes) Unsolicited(_ string, first bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.unasked = append(o.unasked, first)
}

func (o *outcomes) caught() []bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return append([]bool(nil), o.unasked...)
}

func (o *outcomes) Finish() { o.finished.Add(1); o.ended <- struct{}{} }

func (o *outcomes) kinds() []Kind {
	o.mu.Lock()
	defer o.mu.Unlock()
	return append([]Kind(nil), o.attempts...)
}

func (o *outcomes) wait(t *testing.T) {
	t.Helper()
	select {
	case <-o.ended:
	case <-time.After(patience):
		require.Fail(t, "the exchange was never finished")
	}
}

func (o *outcomes) err(t *testing.T) *Error {
	t.Helper()
	select {
	case e := <-o.errs:
		return e
	case <-time.After(patience):
		require.Fail(t, "Forward reported no error")
		return nil
	}
}

type edge struct {
	*outcomes
	pool   *Pool
	addr   string
	url    string
	server *fasthttp.Server
	client *http.Client
}

// newEdge serves a pool as an edge would.
func newEdge(t *testing.T, cfg Config, via ForwardOptions) *edge {
	t.Helper()
	out := newOutcomes()
	cfg.Observer = out
	pool, err := New(cfg)
	require.NoError(t, err)
	e := &edge{outcomes: out, pool: pool}
	e.server = &fasthttp.Server{
		Handler: func(ctx *fasthttp.RequestCtx) {
			v := via
			v.Done = out
			if !v.Peer.IsValid() {
				v.Peer = netip.MustParseAddr("192.0.2.1")
			}
			certain := true
			defer func() { CloseUnlessReusable(ctx, certain) }()
			if err := pool.Forward(ctx, v); err != nil {
				fe := err.(*Error)
				if len(ctx.Response.Body()) != 0 || ctx.Response.IsBodyStream() || ctx.Response.Header.Len() > 2 {
					panic("the response is not clean: " + ctx.Response.String())
				}
				certain = !fe.Kind.BeforeUpstream()
				ctx.Response.SetStatusCode(fe.Status())
				ctx.Response.SetBodyString(fe.Kind.String())
				out.errs <- fe
				return
			}
			ctx.Response.Header.Set("RateLimit", `"test";r=1`)
		},
		StreamRequestBody:            true,
		DisablePreParseMultipartForm: true,
		NoDefaultServerHeader:        true,
		NoDefaultContentType:         true,
		ReadBufferSize:               16 << 10,
		CloseOnShutdown:              true,
		Logger:                       quiet{},
		SecureErrorLogMessage:        true,
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	e.addr, e.url = ln.Addr().String(), "http://"+ln.Addr().String()
	served := make(chan error, 1)
	go func() { served <- e.server.Serve(Timeouts{Idle: patience, Read: patience, Write: patience}.Listen(ln)) }()
	tr := &http.Transport{DisableCompression: true}
	e.client = &http.Client{Transport: tr, Timeout: patience}
	t.Cleanup(func() {
		tr.CloseIdleConnections()
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		require.NoError(t, e.server.ShutdownWithContext(ctx))
		require.NoError(t, <-served)
		pool.Close()
		for _, u := range pool.ups {
			require.Zero(t, u.busy.Load(), "busy connections of %s", u.addr)
			require.Zero(t, u.open, "open connections of %s", u.addr)
		}
	})
	return e
}

type quiet struct{}

func (quiet) Printf(string, ...any) {}

// raw sends bytes as they are and returns the whole answer.
func (e *edge) raw(t *testing.T, request string) string {
	t.Helper()
	c, err := net.Dial("tcp", e.addr)
	require.NoError(t, err)
	defer c.Close()
	require.NoError(t, c.SetDeadline(time.Now().Add(patience)))
	_, err = io.WriteString(c, request)
	require.NoError(t, err)
	b, err := io.ReadAll(c)
	require.NoError(t, err)
	return string(b)
}

func (e *edge) get(t *testing.T, path string) (*http.Response, string) {
	t.Helper()
	resp, err := e.client.Get(e.url + path)
	require.NoError(t, err)
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp, string(b)
}

func origin(t *testing.T, h http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	s.Config.Protocols = &http.Protocols{}
	s.Config.Protocols.SetHTTP1(true)
	s.Config.Protocols.SetUnencryptedHTTP2(true)
	s.Start()
	t.Cleanup(s.Close)
	return s.URL
}

// evil is an upstream whose responses the test writes itself: serve gets each
// connection.
func evil(t *testing.T, serve func(c net.Conn, br *bufio.Reader)) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer c.Close()
				_ = c.SetDeadline(time.Now().Add(2 * patience))
				serve(c, bufio.NewReader(c))
			})
		}
	})
	t.Cleanup(func() { ln.Close(); wg.Wait() })
	return "http://" + ln.Addr().String()
}

// head reads a request's header.
func head(br *bufio.Reader) (string, bool) {
	var b strings.Builder
	for {
		line, err := br.ReadString('\n')
		b.WriteString(line)
		if err != nil {
			return b.String(), false
		}
		if line == "\r\n" {
			return b.String(), true
		}
	}
}

// refused returns the URL of a port where nothing listens.
func refused(t *testing.T) string {
	t.Helper()
	return fmt.Sprintf("http://127.0.0.1:%d", testenv.FreePorts(t, 1)[0])
}
