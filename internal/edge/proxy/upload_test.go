package proxy

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestClientBreaksItsUpload(t *testing.T) {
	f := func(name, request string, stop func(c net.Conn), wantStatus int) {
		limit := patience
		if wantStatus == 408 {
			limit = time.Second
		}
		t.Run(name, func(t *testing.T) {
			whole := make(chan bool, 1)
			up := origin(t, func(_ http.ResponseWriter, r *http.Request) {
				_, err := io.Copy(io.Discard, r.Body)
				whole <- err == nil
			})
			e := newEdge(t, Config{Upstreams: []string{up}, StreamTimeout: limit, FailAfter: 1}, ForwardOptions{})
			c, err := net.Dial("tcp", e.addr)
			require.NoError(t, err)
			defer c.Close()
			_, err = io.WriteString(c, request+strings.Repeat("x", 10000))
			require.NoError(t, err)
			stop(c)
			ferr := e.err(t)
			require.Equal(t, KindClient, ferr.Kind)
			require.Equal(t, wantStatus, ferr.Status())
			if wantStatus == 408 {
				got, err := io.ReadAll(c)
				require.NoError(t, err)
				require.Contains(t, string(got), "Connection: close")
			}
			require.False(t, <-whole, "the upstream must not take the body for whole")
			require.Equal(t, []Kind{KindClient}, e.kinds())
			require.False(t, e.pool.ups[0].health.resting(time.Since(e.pool.epoch)), "not the upstream's fault")
			e.wait(t)
		})
	}
	const start = "POST / HTTP/1.1\r\nHost: h\r\n"
	hangUp := func(c net.Conn) { c.Close() }
	f("length, hangs up", start+"Content-Length: 20000\r\n\r\n", hangUp, 400)
	f("chunk, hangs up", start+"Transfer-Encoding: chunked\r\n\r\nffff\r\n", hangUp, 400)
	f("chunks, hangs up between", start+"Transfer-Encoding: chunked\r\n\r\n2710\r\n", func(c net.Conn) {
		_, err := io.WriteString(c, "\r\n")
		require.NoError(t, err)
		c.Close()
	}, 400)
	f("length, stalls", start+"Content-Length: 20000\r\n\r\n", func(net.Conn) {}, 408)
}

func TestSlowUpload(t *testing.T) {
	const timeout, steps = time.Second, 10
	step := make(chan struct{})
	up := origin(t, func(w http.ResponseWriter, r *http.Request) {
		buf := make([]byte, 1)
		for {
			if _, err := io.ReadFull(r.Body, buf); err != nil {
				break
			}
			step <- struct{}{}
		}
		_, _ = io.WriteString(w, "done")
	})
	e := newEdge(t, Config{Upstreams: []string{up}, Timeout: timeout, StreamTimeout: patience}, ForwardOptions{})
	r, w := io.Pipe()
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(timeout * 6 / 5 / steps) // the client's pace, not a wait for something
		defer tick.Stop()
		for range steps {
			<-tick.C
			_, _ = w.Write([]byte("x"))
			<-step // it arrived on its own
		}
		w.Close()
	})
	resp, err := e.client.Post(e.url, "", r)
	wg.Wait()
	require.NoError(t, err)
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.Equal(t, "done", string(b))
}

func TestUploadTooLarge(t *testing.T) {
	var hits atomic.Int32
	up := origin(t, func(_ http.ResponseWriter, r *http.Request) {
		hits.Add(1)
		_, _ = io.Copy(io.Discard, r.Body)
	})
	e := newEdge(t, Config{Upstreams: []string{up}, MaxRequestBodyBytes: 10000}, ForwardOptions{})
	got := e.raw(t, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 10001\r\n\r\n"+strings.Repeat("x", 9000))
	require.Contains(t, got, " 413 ")
	require.Zero(t, hits.Load(), "a known length is refused before an upstream is asked")
	require.Equal(t, 1, strings.Count(got, "HTTP/1.1"), "the rest of the body is not a request: %q", got)

	got = e.raw(t, "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n2711\r\n"+strings.Repeat("x", 10001)+"\r\n")
	require.Contains(t, got, " 413 ")
	require.EqualValues(t, 2, e.finished.Load())
}

func TestEarlyAnswer(t *testing.T) {
	over := make(chan struct{})
	up := evil(t, func(c net.Conn, br *bufio.Reader) {
		head(br)
		_, _ = io.WriteString(c, "HTTP/1.1 413 Too Large\r\nContent-Length: 3\r\n\r\nbig")
		<-over // without reading, so that the proxy's writes stall
	})
	t.Cleanup(func() { close(over) })
	e := newEdge(t, Config{Upstreams: []string{up}, StreamTimeout: time.Second}, ForwardOptions{})
	c, err := net.Dial("tcp", e.addr)
	require.NoError(t, err)
	defer c.Close()
	go func() {
		_, _ = io.WriteString(c, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: "+strconv.Itoa(large)+"\r\n\r\n")
		_, _ = io.CopyN(c, new(pattern), large)
	}()
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	require.NoError(t, err)
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.Equal(t, 413, resp.StatusCode)
	require.Equal(t, "big", string(b))
	require.True(t, resp.Close, "the rest of the upload is not a request")
}

func TestHalfClosedUpload(t *testing.T) {
	up := origin(t, func(w http.ResponseWriter, r *http.Request) {
		n, err := io.Copy(io.Discard, r.Body)
		fmt.Fprintf(w, "%d %v", n, err)
	})
	e := newEdge(t, Config{Upstreams: []string{up}}, ForwardOptions{})
	c, err := net.Dial("tcp", e.addr)
	require.NoError(t, err)
	defer c.Close()
	_, err = io.WriteString(c, "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n")
	require.NoError(t, err)
	require.NoError(t, c.(*net.TCPConn).CloseWrite())
	b, err := io.ReadAll(c)
	require.NoError(t, err)
	require.True(t, strings.HasSuffix(string(b), "\r\n3 <nil>"), string(b))
}

// A body that trickles in, a byte before each deadline, is abandoned.
func TestTrickledUpload(t *testing.T) {
	up := originOfBoth(t, func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) })
	for _, scheme := range []string{"http://", "h2c://"} {
		t.Run(scheme, func(t *testing.T) { trickle(t, scheme+up) })
	}
}

func trickle(t *testing.T, up string) {
	e := newEdge(t, Config{Upstreams: []string{up}, StreamTimeout: time.Second, MinBodyRate: 1 << 20}, ForwardOptions{})
	c, err := net.Dial("tcp", e.addr)
	require.NoError(t, err)
	defer c.Close()
	_, err = io.WriteString(c, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 2000000\r\n\r\n"+strings.Repeat("x", 10000))
	require.NoError(t, err)
	done := make(chan struct{})
	defer close(done)
	go func() {
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
				if _, err := c.Write([]byte("x")); err != nil {
					return
				}
			}
		}
	}()
	ferr := e.err(t)
	require.Equal(t, KindClient, ferr.Kind)
	require.Equal(t, 408, ferr.Status())
	e.wait(t)
}

// Whoever stalls an upload is to blame for it, with each protocol of the upstream.
func TestWhoStallsAnUpload(t *testing.T) {
	f := func(name, scheme string, body io.Reader, want Kind) {
		t.Run(name+" "+scheme, func(t *testing.T) {
			hold := make(chan struct{})
			up := originOfBoth(t, func(http.ResponseWriter, *http.Request) { <-hold })
			defer close(hold)
			e := newEdge(t, Config{Upstreams: []string{scheme + up}, StreamTimeout: time.Second, FailAfter: 1}, ForwardOptions{})
			c, err := net.Dial("tcp", e.addr)
			require.NoError(t, err)
			var wg sync.WaitGroup
			defer wg.Wait()
			defer c.Close()
			wg.Go(func() {
				_, _ = io.WriteString(c, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1000000000\r\n\r\n")
				_, _ = io.Copy(c, body)
			})
			require.Equal(t, want, e.err(t).Kind)
			require.Equal(t, want == KindTimeout, e.pool.ups[0].health.resting(time.Since(e.pool.epoch)))
		})
	}
	for _, scheme := range []string{"http://", "h2c://"} {
		f("the client", scheme, strings.NewReader(strings.Repeat("x", 10000)), KindClient)
		f("the origin", scheme, endless{}, KindTimeout)
	}
}

// originOfBoth starts an origin that speaks HTTP/1.1 and HTTP/2 without TLS, and returns its address.
func originOfBoth(t *testing.T, handler http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewUnstartedServer(handler)
	s.Config.Protocols = new(http.Protocols)
	s.Config.Protocols.SetHTTP1(true)
	s.Config.Protocols.SetUnencryptedHTTP2(true)
	s.Start()
	t.Cleanup(s.Close)
	return s.Listener.Addr().String()
}

// endless is a body without an end.
type endless struct{}

func (endless) Read(b []byte) (int, error) { return len(b), nil }
