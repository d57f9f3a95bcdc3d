package proxy

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"hash/crc32"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"
)

const large = 64 << 20

// pattern is an endless, easily checked body.
type pattern struct{ n int }

func (p *pattern) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = byte(p.n * 131 >> 7)
		p.n++
	}
	return len(b), nil
}

func sum(r io.Reader) (string, error) {
	h := crc32.NewIEEE()
	n, err := io.Copy(h, r)
	return fmt.Sprintf("%d %08x", n, h.Sum32()), err
}

// heapGrowth runs f and returns the heap's largest growth.
func heapGrowth(f func()) int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	before, peak := int64(m.HeapInuse), int64(0)
	done, sampled := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(sampled)
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
				runtime.ReadMemStats(&m)
				peak = max(peak, int64(m.HeapInuse)-before)
			}
		}
	}()
	f()
	close(done)
	<-sampled
	return peak
}

func TestLargeBodiesBothWays(t *testing.T) {
	want, err := sum(io.LimitReader(new(pattern), large))
	require.NoError(t, err)
	up := origin(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/up":
			got, _ := sum(r.Body)
			_, _ = io.WriteString(w, got)
		case "/down":
			w.Header().Set("Content-Length", strconv.Itoa(large))
			fallthrough
		default:
			_, _ = io.CopyN(w, new(pattern), large)
		}
	})
	e := newEdge(t, Config{Upstreams: []string{up}}, ForwardOptions{})
	grew := heapGrowth(func() {
		for _, path := range []string{"/down", "/chunks"} {
			resp, err := e.client.Get(e.url + path)
			require.NoError(t, err)
			got, err := sum(resp.Body)
			resp.Body.Close()
			require.NoError(t, err)
			require.Equal(t, want, got, path)
			e.wait(t)
		}
		for _, size := range []int64{large, -1} {
			req, err := http.NewRequest("POST", e.url+"/up", io.LimitReader(new(pattern), large))
			require.NoError(t, err)
			req.ContentLength = size
			resp, err := e.client.Do(req)
			require.NoError(t, err)
			got, err := io.ReadAll(resp.Body)
			resp.Body.Close()
			require.NoError(t, err)
			require.Equal(t, want, string(got))
			e.wait(t)
		}
	})
	require.Less(t, grew, int64(16<<20), "heap growth in bytes while 256 MiB passed")
	require.Empty(t, e.streams)
	require.EqualValues(t, 4, e.finished.Load())
}

// An upstream that breaks or stalls in the middle of a body must not look to the client
// as if the body were whole.
func TestBrokenStreams(t *testing.T) {
	part := strings.Repeat("x", 20<<10)
	f := func(name, header, body string, hold bool, want Kind) {
		t.Run(name, func(t *testing.T) {
			up := evil(t, func(c net.Conn, br *bufio.Reader) {
				head(br)
				_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\n"+header+"\r\n\r\n"+body)
				if hold {
					_, _ = io.Copy(io.Discard, br)
				}
			})
			e := newEdge(t, Config{Upstreams: []string{up}, StreamTimeout: limitFor(want)}, ForwardOptions{})
			resp, err := e.client.Get(e.url)
			require.NoError(t, err)
			defer resp.Body.Close()
			_, err = io.ReadAll(resp.Body)
			require.ErrorIs(t, err, io.ErrUnexpectedEOF)
			e.wait(t)
			e.mu.Lock()
			defer e.mu.Unlock()
			require.Equal(t, []Kind{want}, e.streams)
			require.EqualValues(t, 1, e.finished.Load())
		})
	}
	const length, chunks = "Content-Length: 1000000", "Transfer-Encoding: chunked"
	chunk := fmt.Sprintf("%x\r\n%s\r\n", len(part), part)
	f("length, breaks", length, part, false, KindBroken)
	f("length, stalls", length, part, true, KindTimeout)
	f("chunks, break between", chunks, chunk, false, KindBroken)
	f("chunks, break inside", chunks, chunk+"ff\r\nabc", false, KindBroken)
	f("chunks, break in a size", chunks, chunk+"f", false, KindBroken)
	f("chunks, stall between", chunks, chunk, true, KindTimeout)
	f("chunks, stall inside", chunks, chunk+"ff\r\nabc", true, KindTimeout)
	f("chunks, garbage", chunks, chunk+"zz\r\n", true, KindBadResponse)
	f("no length, stalls", "X: 1", part, true, KindTimeout)
}

func TestUnknownLengthEndsWithTheConnection(t *testing.T) {
	part := strings.Repeat("x", 20<<10)
	up := evil(t, func(c net.Conn, br *bufio.Reader) {
		head(br)
		_, _ = io.WriteString(c, "HTTP/1.0 200 OK\r\n\r\n"+part)
	})
	e := newEdge(t, Config{Upstreams: []string{up}}, ForwardOptions{})
	resp, body := e.get(t, "/")
	require.Equal(t, "HTTP/1.1", resp.Proto)
	require.Equal(t, part, body)
	require.Equal(t, []string{"chunked"}, resp.TransferEncoding)
}

func TestTrailersAreDropped(t *testing.T) {
	up := origin(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Trailer", "X-Sum")
		_, _ = io.WriteString(w, strings.Repeat("x", 5000))
		w.Header().Set("X-Sum", "1")
	})
	e := newEdge(t, Config{Upstreams: []string{up}}, ForwardOptions{})
	for range 3 {
		resp, body := e.get(t, "/")
		require.Len(t, body, 5000)
		require.Empty(t, resp.Trailer)
		require.NotContains(t, resp.Header, "X-Sum")
		e.wait(t)
	}
	u := e.pool.ups[0]
	u.mu.Lock()
	defer u.mu.Unlock()
	require.Equal(t, 1, u.open, "the connection is kept")
}

// Events arrive one by one, with the header before any of them.
func TestEventsAreNotHeldBack(t *testing.T) {
	next := make(chan string)
	up := origin(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		w.(http.Flusher).Flush()
		for ev := range next {
			_, _ = io.WriteString(w, ev)
			w.(http.Flusher).Flush()
		}
	})
	e := newEdge(t, Config{Upstreams: []string{up}}, ForwardOptions{})
	resp, err := e.client.Get(e.url) // returns with the header
	require.NoError(t, err)
	defer resp.Body.Close()
	buf := make([]byte, 100)
	for _, ev := range []string{"data: 1\n\n", "data: 2\n\n"} {
		next <- ev
		n, err := io.ReadFull(resp.Body, buf[:len(ev)])
		require.NoError(t, err)
		require.Equal(t, ev, string(buf[:n]))
	}
	require.Zero(t, e.finished.Load(), "not before the body ends")
	close(next)
	_, err = resp.Body.Read(buf)
	require.Equal(t, io.EOF, err)
	e.wait(t)
}

func TestClientStopsTaking(t *testing.T) {
	gone := make(chan struct{})
	up := origin(t, func(w http.ResponseWriter, r *http.Request) {
		defer close(gone)
		_, _ = io.Copy(w, new(pattern)) // ends when the proxy hangs up
	})
	f := func(name, scheme string, limit time.Duration, stop func(c net.Conn)) {
		t.Run(name, func(t *testing.T) {
			gone = make(chan struct{})
			e := newEdge(t, Config{Upstreams: []string{strings.Replace(up, "http", scheme, 1)}, StreamTimeout: limit, MinBodyRate: 64 << 20}, ForwardOptions{})
			c, err := net.Dial("tcp", e.addr)
			require.NoError(t, err)
			defer c.Close()
			_, err = io.WriteString(c, "GET / HTTP/1.1\r\nHost: h\r\n\r\n")
			require.NoError(t, err)
			_, err = io.CopyN(io.Discard, c, 100<<10)
			require.NoError(t, err)
			stop(c)
			e.wait(t)
			<-gone
			e.mu.Lock()
			defer e.mu.Unlock()
			require.Equal(t, []Kind{KindClient}, e.streams)
			require.EqualValues(t, 1, e.finished.Load())
		})
	}
	both := func(name string, limit time.Duration, stop func(c net.Conn)) {
		for _, scheme := range []string{"http", "h2c"} {
			f(name+", "+scheme, scheme, limit, stop)
		}
	}
	both("hangs up", patience, func(c net.Conn) { c.Close() })
	both("stalls", time.Second, func(net.Conn) {})
	both("reads slowly", time.Second, func(c net.Conn) {
		go func() {
			tick := time.NewTicker(100 * time.Millisecond)
			defer tick.Stop()
			for range tick.C { // a piece within each deadline
				if _, err := io.CopyN(io.Discard, c, 256<<10); err != nil {
					return
				}
			}
		}()
	})
}

// An upload may take longer than any single timeout as long as it progresses.
// An upstream answers and stops reading the body.
// A graceful shutdown lets a body in progress end.
func TestShutdownWaitsForAStream(t *testing.T) {
	begun, release := make(chan struct{}), make(chan struct{})
	up := origin(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write(bytes.Repeat([]byte("x"), 20<<10))
		w.(http.Flusher).Flush()
		close(begun)
		<-release
		_, _ = io.WriteString(w, "end")
	})
	e := newEdge(t, Config{Upstreams: []string{up}}, ForwardOptions{})
	resp, err := e.client.Get(e.url)
	require.NoError(t, err)
	defer resp.Body.Close()
	<-begun
	down := make(chan error, 1)
	go func() { down <- e.server.ShutdownWithContext(context.Background()) }()
	require.Eventually(t, func() bool { // the listener is closed first
		c, err := net.Dial("tcp", e.addr)
		if err == nil {
			c.Close()
		}
		return err != nil
	}, patience, time.Millisecond)
	require.Empty(t, down)
	close(release)
	b, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.True(t, strings.HasSuffix(string(b), "xend"))
	require.NoError(t, <-down)
}

func TestHTTPSUpstream(t *testing.T) {
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%v %s", r.TLS != nil, b)
	}))
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	t.Cleanup(s.Close)

	e := newEdge(t, Config{Upstreams: []string{s.URL}, TLS: s.Client().Transport.(*http.Transport).TLSClientConfig}, ForwardOptions{})
	for i := range 3 {
		resp, err := e.client.Post(e.url, "", strings.NewReader(strconv.Itoa(i)))
		require.NoError(t, err)
		b, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		require.NoError(t, err)
		require.Equal(t, fmt.Sprintf("true %d", i), string(b))
	}
	u := e.pool.ups[0]
	u.mu.Lock()
	require.Equal(t, 1, u.open)
	u.mu.Unlock()

	e = newEdge(t, Config{Upstreams: []string{s.URL}}, ForwardOptions{})
	resp, body := e.get(t, "/")
	require.Equal(t, 502, resp.StatusCode)
	require.Equal(t, "connect", body)
	require.ErrorContains(t, e.err(t), "certificate")
}

// A client may close its sending side after a whole request.
func TestTLSListener(t *testing.T) {
	up := origin(t, func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		_, _ = io.WriteString(w, r.Header.Get("X-Forwarded-Proto")+" "+string(b))
	})
	pool, err := New(Config{Upstreams: []string{up}})
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	s := httptest.NewUnstartedServer(nil) // for its certificate and client
	s.StartTLS()
	t.Cleanup(s.Close)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	server := &fasthttp.Server{StreamRequestBody: true, Handler: func(ctx *fasthttp.RequestCtx) {
		defer CloseUnlessReusable(ctx, true)
		if err := pool.Forward(ctx, ForwardOptions{TLS: ctx.IsTLS()}); err != nil {
			ctx.Error(err.Error(), err.(*Error).Status())
		}
	}}
	served := make(chan error, 1)
	go func() { served <- server.Serve(Timeouts{}.Listen(tls.NewListener(ln, s.TLS))) }()
	client := s.Client()
	resp, err := client.Post("https://"+ln.Addr().String(), "", io.MultiReader(strings.NewReader("chunks")))
	require.NoError(t, err)
	b, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	require.NoError(t, err)
	require.Equal(t, "https chunks", string(b))
	client.CloseIdleConnections()
	require.NoError(t, server.Shutdown())
	require.NoError(t, <-served)
}

func TestManyAtOnce(t *testing.T) {
	echo := func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		_, _ = w.Write(b)
	}
	e := newEdge(t, Config{Upstreams: []string{origin(t, echo), refused(t), origin(t, echo)}, IdleTimeout: 5 * time.Millisecond}, ForwardOptions{})
	var wg sync.WaitGroup
	for worker := range 8 {
		wg.Go(func() {
			for i := range 40 {
				body := strings.Repeat(strconv.Itoa(worker), i*1000)
				resp, err := e.client.Post(e.url, "", strings.NewReader(body))
				if err != nil {
					t.Errorf("request %d of %d: %v", i, worker, err)
					return
				}
				got, err := io.ReadAll(resp.Body)
				resp.Body.Close()
				if err != nil || resp.StatusCode != 200 || string(got) != body {
					t.Errorf("request %d of %d: status %d, %d bytes, %v", i, worker, resp.StatusCode, len(got), err)
				}
			}
		})
	}
	wg.Wait()
	for range 320 {
		e.wait(t)
	}
	require.EqualValues(t, 320, e.finished.Load())
}
