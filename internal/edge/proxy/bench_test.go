package proxy

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"
)

// answering is an upstream that allocates nothing, so that only the proxy is measured.
func answering(tb testing.TB, answer string) string {
	tb.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(tb, err)
	tb.Cleanup(func() { ln.Close() })
	reply := []byte(answer)
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				buf := make([]byte, 64<<10)
				for {
					n, err := c.Read(buf)
					if err != nil {
						return
					}
					if bytes.HasPrefix(buf[:n], []byte("POST")) && !bytes.HasSuffix(buf[:n], []byte("body")) {
						continue // the body follows
					}
					if _, err := c.Write(reply); err != nil {
						return
					}
				}
			}()
		}
	}()
	return "http://" + ln.Addr().String()
}

var smallAnswer = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nServer: bench\r\nCache-Control: no-store\r\n" +
	"Content-Length: 100\r\n\r\n" + string(bytes.Repeat([]byte("x"), 100))

const (
	getRequest = "GET /a/b?c=d HTTP/1.1\r\nHost: example.com\r\nUser-Agent: bench/1.0\r\nAccept: */*\r\n" +
		"Accept-Encoding: gzip\r\nCookie: session=0123456789\r\nX-Api-Key: abcdef\r\n\r\n"
	postRequest = "POST /a/b?c=d HTTP/1.1\r\nHost: example.com\r\nUser-Agent: bench/1.0\r\nAccept: */*\r\n" +
		"Content-Type: application/json\r\nContent-Length: 8\r\nX-Api-Key: abcdef\r\n\r\nthe body"
)

func serve(tb testing.TB, h fasthttp.RequestHandler) string {
	tb.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(tb, err)
	s := &fasthttp.Server{Handler: h, StreamRequestBody: true, DisablePreParseMultipartForm: true,
		NoDefaultServerHeader: true, NoDefaultContentType: true,
		ReadTimeout: time.Minute, WriteTimeout: time.Minute, IdleTimeout: time.Minute}
	done := make(chan struct{})
	go func() { defer close(done); _ = s.Serve(Timeouts{}.Listen(ln)) }()
	tb.Cleanup(func() { ln.Close(); <-done })
	return ln.Addr().String()
}

type noFinish struct{}

func (noFinish) Finish() {}

func weirHandler(tb testing.TB, up string) fasthttp.RequestHandler {
	p, err := New(Config{Upstreams: []string{up}})
	require.NoError(tb, err)
	tb.Cleanup(p.Close)
	peer := netip.MustParseAddr("192.0.2.1")
	return func(ctx *fasthttp.RequestCtx) {
		if err := p.Forward(ctx, ForwardOptions{Peer: peer, Done: noFinish{}}); err != nil {
			panic(err)
		}
	}
}

// bareHandler does the least a fasthttp proxy can: it touches no header.
func bareHandler(tb testing.TB, up string, stream bool) fasthttp.RequestHandler {
	c := &fasthttp.HostClient{Addr: up[len("http://"):], NoDefaultUserAgentHeader: true, StreamResponseBody: stream,
		ReadTimeout: 30 * time.Second, WriteTimeout: 30 * time.Second, MaxConns: 1024,
		Dial: func(addr string) (net.Conn, error) { return net.Dial("tcp", addr) }, MaxIdleConnDuration: time.Second}
	tb.Cleanup(c.CloseIdleConnections)
	return func(ctx *fasthttp.RequestCtx) {
		if err := c.Do(&ctx.Request, &ctx.Response); err != nil {
			panic(err)
		}
	}
}

// exchanger returns a function that makes one exchange over its own connection without
// allocating.
func exchanger(tb testing.TB, addr, request string, body int) func() {
	tb.Helper()
	c, err := net.Dial("tcp", addr)
	require.NoError(tb, err)
	tb.Cleanup(func() { c.Close() })
	br, req := bufio.NewReader(c), []byte(request)
	return func() {
		if _, err := c.Write(req); err != nil {
			panic(err)
		}
		for {
			line, err := br.ReadSlice('\n')
			if err != nil {
				panic(err)
			}
			if len(line) == 2 {
				break
			}
		}
		if _, err := br.Discard(body); err != nil {
			panic(err)
		}
	}
}

func TestAllocations(t *testing.T) {
	large := fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", 100<<10, bytes.Repeat([]byte("x"), 100<<10))
	f := func(name, answer, request string, body int, below float64) {
		t.Run(name, func(t *testing.T) {
			once := exchanger(t, serve(t, weirHandler(t, answering(t, answer))), request, body)
			for range 100 {
				once()
			}
			require.Less(t, testing.AllocsPerRun(2000, once), below)
		})
	}
	f("get", smallAnswer, getRequest, 100, 1)
	f("post", smallAnswer, postRequest, 100, 1)
	// No allocations here either, but the race detector empties the pools of streams.
	f("streamed response", large, getRequest, 100<<10, 3)
}

func BenchmarkProxy(b *testing.B) {
	for _, r := range []struct{ name, request string }{{"get", getRequest}, {"post", postRequest}} {
		for _, h := range []struct {
			name string
			make func(testing.TB, string) fasthttp.RequestHandler
		}{
			{"bare", func(tb testing.TB, up string) fasthttp.RequestHandler { return bareHandler(tb, up, false) }},
			{"bare-streaming", func(tb testing.TB, up string) fasthttp.RequestHandler { return bareHandler(tb, up, true) }},
			{"weir", weirHandler},
		} {
			b.Run(r.name+"/"+h.name, func(b *testing.B) {
				addr := serve(b, h.make(b, answering(b, smallAnswer)))
				b.ReportAllocs()
				b.SetParallelism(32)
				b.RunParallel(func(pb *testing.PB) {
					once := exchanger(b, addr, r.request, 100)
					for pb.Next() {
						once()
					}
				})
			})
		}
	}
}

// BenchmarkHeaders measures what weir adds to a bare proxy, without the network.
func BenchmarkHeaders(b *testing.B) {
	p, err := New(Config{Upstreams: []string{"http://127.0.0.1:1"}})
	require.NoError(b, err)
	b.Cleanup(p.Close)
	via := &ForwardOptions{Peer: netip.MustParseAddr("192.0.2.1")}
	var ctx fasthttp.RequestCtx
	raw := []byte(getRequest)
	src, br := bytes.NewReader(nil), bufio.NewReader(nil)
	read := func(b *testing.B) {
		src.Reset(raw)
		br.Reset(src)
		if err := ctx.Request.Header.Read(br); err != nil && err != io.EOF {
			b.Fatal(err)
		}
	}
	b.Run("parse", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			read(b)
		}
	})
	b.Run("parse-and-prepare", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			read(b)
			if e := p.prepare(&ctx, via); e != nil {
				b.Fatal(e)
			}
		}
	})
}

// BenchmarkLook measures the check of a kept connection.
func BenchmarkLook(b *testing.B) {
	p, err := New(Config{Upstreams: []string{answering(b, smallAnswer)}})
	require.NoError(b, err)
	b.Cleanup(p.Close)
	c, err := p.ups[0].get(true)
	require.NoError(b, err)
	b.Cleanup(func() { p.ups[0].put(c, false, 0) })
	b.ReportAllocs()
	for b.Loop() {
		if c.look() != idleQuiet {
			b.Fatal("the connection is not quiet")
		}
	}
}
