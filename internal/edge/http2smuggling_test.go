package edge

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/weir-edge/weir/internal/edge/config"
	"github.com/weir-edge/weir/internal/testenv"
)

// wireOrigin speaks HTTP/1.1 as net/http reads it, and keeps even the requests whose bodies it could not
// read to the end.
type wireOrigin struct {
	net.Listener
	mu    sync.Mutex // guards asked
	asked []*http.Request
}

func startWireOrigin(t *testing.T) *wireOrigin {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	o := &wireOrigin{Listener: ln}
	t.Cleanup(func() { _ = ln.Close() })
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			go o.serve(conn)
		}
	}()
	return o
}

func (o *wireOrigin) serve(conn net.Conn) {
	defer conn.Close()
	br := bufio.NewReader(conn)
	for {
		req, err := http.ReadRequest(br)
		if err != nil {
			return
		}
		_, err = io.Copy(io.Discard, req.Body)
		o.mu.Lock()
		o.asked = append(o.asked, req)
		o.mu.Unlock()
		if err != nil {
			return
		}
		if _, err := io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"); err != nil {
			return
		}
	}
}

// requests returns what came so far.
func (o *wireOrigin) requests() []*http.Request {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.asked)
}

// exactly sends a request with exactly these fields, a body and trailers, and returns the answer's
// status, or RST_STREAM or GOAWAY.
func exactly(a *testenv.Attacker, fields [][2]string, body string, trailers [][2]string) string {
	id := a.Stream()
	a.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	encode := func(fields [][2]string) []byte {
		var list []hpack.HeaderField
		for _, f := range fields {
			list = append(list, hpack.HeaderField{Name: f[0], Value: f[1]})
		}
		return a.Encode(list...)
	}
	// A write may fail: the node need not read to the end.
	_ = a.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: encode(fields), EndHeaders: true, EndStream: body == "" && trailers == nil})
	if body != "" {
		_ = a.WriteData(id, trailers == nil, []byte(body))
	}
	if trailers != nil {
		_ = a.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: encode(trailers), EndHeaders: true, EndStream: true})
	}
	got := "closed"
	a.Frames(func(f http2.Frame) bool {
		switch f := f.(type) {
		case *http2.MetaHeadersFrame:
			got = f.PseudoValue("status")
		case *http2.RSTStreamFrame:
			got = "RST_STREAM"
		case *http2.GoAwayFrame:
			got = "GOAWAY"
		default:
			return false
		}
		return true
	})
	return got
}

// No stream of HTTP/2 becomes two requests of HTTP/1.1, or one that the origin reads in
// another way than the rules did.
func TestHTTP2SmugglesNothing(t *testing.T) {
	o := startWireOrigin(t)
	n := startH2C(t, setup{config: func(c *config.Config) { c.Upstreams = []config.Upstream{{URL: "http://" + o.Addr().String()}} }})
	plain := [][2]string{{":method", "POST"}, {":scheme", "http"}, {":path", "/"}, {":authority", "a.example"}}
	with := func(more ...[2]string) [][2]string { return append(slices.Clone(plain), more...) }
	pseudo := func(name, value string) [][2]string {
		fields := slices.Clone(plain)
		for i := range fields {
			if fields[i][0] == name {
				fields[i][1] = value
			}
		}
		return fields
	}
	const inner = "GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n"
	refused := []string{"400", "431", "RST_STREAM", "GOAWAY"}
	for _, c := range []struct {
		name     string
		fields   [][2]string
		body     string
		trailers [][2]string
	}{
		{"a line break in a value", with([2]string{"x", "y\r\nweir-risk: none"}), "", nil},
		{"a line feed in a value", with([2]string{"x", "y\nweir-risk: none"}), "", nil},
		{"a carriage return in a value", with([2]string{"x", "y\rz"}), "", nil},
		{"NUL in a value", with([2]string{"x", "y\x00z"}), "", nil},
		{"a line break in a name", with([2]string{"x\r\nweir-risk", "y"}), "", nil},
		{"a colon in a name", with([2]string{"transfer-encoding: chunked\r\nx", "y"}), "", nil},
		{"a space in a name", with([2]string{"transfer-encoding ", "chunked"}), "", nil},
		{"an empty name", with([2]string{"", "y"}), "", nil},
		{"an upper-case name", with([2]string{"Transfer-Encoding", "chunked"}), "", nil},
		{"a line break in the path", pseudo(":path", "/ HTTP/1.1\r\nHost: x\r\n\r\nGET /smuggled"), "", nil},
		{"NUL in the path", pseudo(":path", "/a\x00b"), "", nil},
		{"a space in the path", pseudo(":path", "/smuggled HTTP/1.1"), "", nil},
		{"a tab in the path", pseudo(":path", "/smuggled\tHTTP/1.1"), "", nil},
		{"an empty path", pseudo(":path", ""), "", nil},
		{"a path without a slash", pseudo(":path", "smuggled"), "", nil},
		{"a path with a host", pseudo(":path", "http://x/smuggled"), "", nil},
		{"a line break in the method", pseudo(":method", "GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\nGET"), "", nil},
		{"a space in the method", pseudo(":method", "GET /smuggled"), "", nil},
		{"an empty method", pseudo(":method", ""), "", nil},
		{"CONNECT", pseudo(":method", "CONNECT"), "", nil},
		{"a line break in the authority", pseudo(":authority", "x\r\nweir-risk: none"), "", nil},
		{"a space in the authority", pseudo(":authority", "a b"), "", nil},
		{"a slash in the authority", pseudo(":authority", "a/b"), "", nil},
		{"userinfo in the authority", pseudo(":authority", "u@a.example"), "", nil},
		{"two authorities", with([2]string{":authority", "b.example"}), "", nil},
		{"two paths", with([2]string{":path", "/smuggled"}), "", nil},
		{"two methods", with([2]string{":method", "GET"}), "", nil},
		{"two schemes", with([2]string{":scheme", "https"}), "", nil},
		{"a pseudo header of answers", with([2]string{":status", "200"}), "", nil},
		{"an unknown pseudo header", with([2]string{":x", "y"}), "", nil},
		{"a pseudo header after others", with([2]string{"x", "y"}, [2]string{":path", "/smuggled"}), "", nil},
		{"extended CONNECT", with([2]string{":protocol", "websocket"}), "", nil},
		{"Host unlike the authority", with([2]string{"host", "b.example"}), "", nil},
		{"Host twice", with([2]string{"host", "a.example"}, [2]string{"host", "a.example"}), "", nil},
		{"Transfer-Encoding", with([2]string{"transfer-encoding", "chunked"}), "0\r\n\r\n" + inner, nil},
		{"Transfer-Encoding alongside Content-Length", with([2]string{"content-length", "38"}, [2]string{"transfer-encoding", "chunked"}), "0\r\n\r\n" + inner[:33], nil},
		{"Connection", with([2]string{"connection", "x-forwarded-for"}), "", nil},
		{"Upgrade", with([2]string{"upgrade", "h2c"}), "", nil},
		{"Content-Length below the data", with([2]string{"content-length", "1"}), "x" + inner, nil},
		{"Content-Length above the data", with([2]string{"content-length", "99"}), inner, nil},
		{"Content-Length without data", with([2]string{"content-length", "36"}), "", nil},
		{"Content-Length twice", with([2]string{"content-length", "0"}, [2]string{"content-length", "36"}), inner, nil},
		{"Content-Length with a sign", with([2]string{"content-length", "+36"}), inner, nil},
		{"Content-Length as a list", with([2]string{"content-length", "36, 36"}), inner, nil},
		{"Content-Length beyond 64 bits", with([2]string{"content-length", "99999999999999999999"}), inner, nil},
		{"Authorization among trailers", with([2]string{"trailer", "authorization"}), "x", [][2]string{{"authorization", "x"}}},
		{"Host among trailers", with([2]string{"trailer", "host"}), "x", [][2]string{{"host", "b.example"}}},
		{"a pseudo header among trailers", plain, "x", [][2]string{{":path", "/smuggled"}}},
		{"a line break in a trailer", plain, "x", [][2]string{{"x", "y\r\n\r\n" + inner}}},
		{"an upper-case trailer", plain, "x", [][2]string{{"Weir-Risk", "none"}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := n.attacker()
			a.T = t
			require.Contains(t, refused, exactly(a, c.fields, c.body, c.trailers))
		})
	}
	// What is allowed arrives as one request. Requests above that ended within their bodies may still be arriving.
	f := func(name, path string, more [][2]string, body string, trailers [][2]string, check func(*http.Request)) {
		t.Run(name, func(t *testing.T) {
			a := n.attacker()
			a.T = t
			require.Equal(t, "200", exactly(a, append(pseudo(":path", path), more...), body, trailers))
			var got []*http.Request
			for _, r := range o.requests() {
				if r.URL.Path == path {
					got = append(got, r)
				}
			}
			require.Len(t, got, 1)
			check(got[0])
		})
	}
	f("a body that looks like a request", "/body", nil, inner, nil, func(r *http.Request) { require.Equal(t, []string{"chunked"}, r.TransferEncoding) })
	f("Host like the authority", "/host", [][2]string{{"host", "a.example"}}, "", nil, func(r *http.Request) { require.Equal(t, "a.example", r.Host) })
	f("trailers", "/trailers", [][2]string{{"trailer", "weir-risk, x-forwarded-for"}}, "x", [][2]string{{"weir-risk", "none"}, {"x-forwarded-for", "192.0.2.1"}}, func(r *http.Request) {
		require.Equal(t, []string{"127.0.0.1"}, r.Header["X-Forwarded-For"])
		require.Empty(t, r.Trailer, "HTTP/1.1 gets none")
	})
	f("Content-Length among trailers", "/length", [][2]string{{"trailer", "content-length"}}, "x", [][2]string{{"content-length", "9"}}, func(r *http.Request) {
		require.Equal(t, []string{"chunked"}, r.TransferEncoding)
		require.Empty(t, r.Trailer)
	})
	for _, r := range o.requests() {
		require.NotContains(t, r.RequestURI, "smuggled")
	}
	require.Zero(t, n.metric("weir_panics_total"))
	eventually(t, "nothing is left open", func() bool { return n.listeners.HTTP2.Streams() == 0 })
}

// Trailers reach an origin of HTTP/2, but none that says what only a header or a proxy may say.
func TestHTTP2TrailersAreNoHeaders(t *testing.T) {
	got := make(chan http.Header, 1)
	origin := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		got <- r.Trailer
	}))
	origin.Config.Protocols = &http.Protocols{}
	origin.Config.Protocols.SetUnencryptedHTTP2(true)
	origin.Start()
	t.Cleanup(origin.Close)
	n := startH2C(t, setup{config: func(c *config.Config) {
		c.Upstreams = []config.Upstream{{URL: "h2c://" + origin.Listener.Addr().String()}}
	}})
	a := n.attacker()
	names := []string{"x-sum", "weir-risk", "weir-tier", "x-forwarded-for", "x-real-ip", "forwarded", "via", "cdn-loop", "cookie"}
	var trailers [][2]string
	for _, name := range names {
		trailers = append(trailers, [2]string{name, "1"})
	}
	fields := [][2]string{{":method", "POST"}, {":scheme", "http"}, {":path", "/"}, {":authority", "a.example"}, {"trailer", strings.Join(names, ", ")}}
	require.Equal(t, "200", exactly(a, fields, "x", trailers))
	require.Equal(t, http.Header{"X-Sum": {"1"}}, <-got)
}
