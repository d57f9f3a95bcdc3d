package edge

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/weir-edge/weir/internal/edge/config"
)

// attacker speaks HTTP/2 frame by frame.
type attacker struct {
	t      *testing.T
	conn   net.Conn
	framer *http2.Framer
	heads  bytes.Buffer
	coder  *hpack.Encoder
	next   uint32
	path   string
}

func (n *node) attacker() *attacker {
	n.t.Helper()
	conn, err := net.Dial("tcp", n.public)
	require.NoError(n.t, err)
	n.t.Cleanup(func() { _ = conn.Close() })
	a := &attacker{t: n.t, conn: conn, framer: http2.NewFramer(conn, conn), next: 1, path: "/"}
	a.coder = hpack.NewEncoder(&a.heads)
	_, err = io.WriteString(conn, http2.ClientPreface)
	require.NoError(n.t, err)
	require.NoError(n.t, a.framer.WriteSettings())
	return a
}

func (a *attacker) head(fields ...string) []byte {
	a.heads.Reset()
	for _, f := range append([]string{":method GET", ":scheme http", ":path " + a.path, ":authority a.example"}, fields...) {
		name, value, _ := strings.Cut(f, " ")
		_ = a.coder.WriteField(hpack.HeaderField{Name: name, Value: value})
	}
	return a.heads.Bytes()
}

// open begins a stream.
func (a *attacker) open(ends bool, fields ...string) (id uint32, err error) {
	id = a.next
	a.next += 2
	return id, a.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: a.head(fields...), EndStream: ends, EndHeaders: true})
}

// frames reads what comes until the connection ends, or until stop says so.
func (a *attacker) frames(stop func(http2.Frame) bool) (closed bool) {
	_ = a.conn.SetReadDeadline(time.Now().Add(patience))
	for {
		f, err := a.framer.ReadFrame()
		var timeout net.Error
		if errors.As(err, &timeout) && timeout.Timeout() {
			require.Fail(a.t, "the connection is neither closed nor answered")
		}
		if err != nil {
			return true
		}
		if stop(f) {
			return false
		}
	}
}

// goesAway returns the code with which the connection ended, and whether there was one.
func (a *attacker) goesAway() (code http2.ErrCode, said bool) {
	a.frames(func(f http2.Frame) bool {
		if g, ok := f.(*http2.GoAwayFrame); ok {
			code, said = g.ErrCode, true
		}
		return false
	})
	return code, said
}

// floods sends until the node closes the connection. It returns how often.
func (a *attacker) floods(send func() error) (sent int) {
	drained := make(chan struct{})
	go func() { // so that nothing of the node's waits for us
		defer close(drained)
		_, _ = io.Copy(io.Discard, a.conn)
	}()
	const enough = 1_000_000
	for send() == nil {
		if sent++; sent == enough {
			require.Fail(a.t, "a million frames were accepted")
		}
	}
	<-drained
	return sent
}

// A client that resets a stream takes its request back: the origin's work ends, and its connection is
// not held until it answers.
func TestHTTP2ResetEndsTheRequest(t *testing.T) {
	began, ended := make(chan struct{}, 10), make(chan struct{}, 10)
	n := startH2C(t, setup{
		rules: "rules: []",
		origin: func(w http.ResponseWriter, r *http.Request) {
			began <- struct{}{}
			<-r.Context().Done()
			ended <- struct{}{}
		},
		config: func(c *config.Config) { c.Upstream.Timeout = time.Hour },
	})
	a := n.attacker()
	for range 10 {
		id, err := a.open(true)
		require.NoError(t, err)
		<-began
		require.NoError(t, a.framer.WriteRSTStream(id, http2.ErrCodeCancel))
		<-ended
	}
	eventually(t, "each counts as the client's", func() bool {
		return n.metric(`weir_upstream_errors_total{kind="client",upstream="default"}`) == 10
	})
}

// Every flood ends with its connection, is counted, and leaves neither slot, permit, stream nor
// memory behind. Frames that were on their way when the node closed are counted as sent here.
func TestHTTP2Floods(t *testing.T) {
	n := startH2C(t, setup{
		rules: "rules: [{id: slots, key: [client_ip], algorithm: concurrency, limit: 100000, window: 1h}]",
		origin: func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/slow" {
				<-r.Context().Done()
			}
		},
		config: func(c *config.Config) { c.Server.ReadTimeout = time.Second; c.Upstream.Timeout = 2 * time.Second },
	})
	flood := func(name, reason string, prepare func(*attacker), send func(*attacker) error) {
		t.Run(name, func(t *testing.T) {
			n := &node{Edge: n.Edge, t: t, public: n.public, admin: n.admin, client: n.client, logs: n.logs}
			series := `weir_http2_refused_total{reason="` + reason + `"}`
			refused := n.metric(series)
			var before, after runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			cpu := processCPU(t)
			a := n.attacker()
			if prepare != nil {
				prepare(a)
			}
			sent := a.floods(func() error { return send(a) })
			eventually(t, "the connection is gone", func() bool { return n.metric("weir_http2_connections") == 0 })
			n.nothingHeld(100_000)
			used := processCPU(t) - cpu
			runtime.GC()
			runtime.ReadMemStats(&after)
			grown := int64(after.HeapAlloc) - int64(before.HeapAlloc)
			t.Logf("%d frames sent; both sides used %s of CPU; the heap grew by %d KiB", sent, used.Round(time.Millisecond), grown>>10)
			require.EqualValues(t, refused+1, n.metric(series), "counted once")
			require.Less(t, grown, int64(8<<20), "bytes")
			most := 2 * time.Second
			if raceEnabled {
				most *= 10
			}
			require.Less(t, used, most, "CPU of the attacker and the node")
		})
	}
	flood("rapid reset", "resets", nil, func(a *attacker) error {
		id, err := a.open(true)
		if err != nil {
			return err
		}
		return a.framer.WriteRSTStream(id, http2.ErrCodeCancel)
	})
	flood("rapid reset of slow requests", "resets", func(a *attacker) { a.path = "/slow" }, func(a *attacker) error {
		id, err := a.open(true)
		if err != nil {
			return err
		}
		return a.framer.WriteRSTStream(id, http2.ErrCodeCancel)
	})
	flood("streams that are never closed", "resets", nil, func(a *attacker) error {
		_, err := a.open(false, "x-y z")
		return err
	})
	flood("resets provoked", "resets", nil, func(a *attacker) error { // as in CVE-2025-8671
		id, err := a.open(true)
		if err != nil {
			return err
		}
		return a.framer.WriteRawFrame(http2.FrameWindowUpdate, 0, id, []byte{0, 0, 0, 0})
	})
	flood("SETTINGS", "control_frames", nil, func(a *attacker) error { return a.framer.WriteSettings() })
	flood("PING", "control_frames", nil, func(a *attacker) error { return a.framer.WritePing(false, [8]byte{}) })
	flood("PRIORITY", "control_frames", nil, func(a *attacker) error {
		return a.framer.WritePriority(1, http2.PriorityParam{StreamDep: 3})
	})
	flood("unknown frames", "control_frames", nil, func(a *attacker) error { return a.framer.WriteRawFrame(0xbe, 0, 0, nil) })
	flood("WINDOW_UPDATE", "window_updates", nil, func(a *attacker) error { return a.framer.WriteWindowUpdate(0, 1) })
	flood("empty DATA", "empty_data", func(a *attacker) {
		_, err := a.open(false)
		require.NoError(t, err)
	}, func(a *attacker) error { return a.framer.WriteData(1, false, nil) })
	flood("CONTINUATION", "continuations", func(a *attacker) {
		require.NoError(t, a.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: a.head()}))
	}, func(a *attacker) error { return a.framer.WriteContinuation(1, false, nil) })
	flood("CONTINUATION with fields", "protocol", func(a *attacker) {
		require.NoError(t, a.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: a.head()}))
	}, func(a *attacker) error {
		a.heads.Reset()
		_ = a.coder.WriteField(hpack.HeaderField{Name: "x", Value: strings.Repeat("y", 4000), Sensitive: true})
		return a.framer.WriteContinuation(1, false, a.heads.Bytes())
	})
	// An HPACK bomb: a field of 4000 bytes in the table, and each byte after it names it again.
	flood("HPACK bomb", "protocol", func(a *attacker) {
		require.NoError(t, a.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: a.head("x " + strings.Repeat("y", 3900))}))
	}, func(a *attacker) error {
		return a.framer.WriteContinuation(1, false, bytes.Repeat([]byte{0x80 | 62}, 16<<10))
	})
	// The node serves others as before.
	require.Equal(t, 200, n.ask("GET", "http://"+n.public+"/").status)
}

// A client that takes nothing of its answers, or sends bodies without end, holds what one
// connection may hold, for as long as it may.
func TestHTTP2SlowStreams(t *testing.T) {
	large := bytes.Repeat([]byte("x"), 100<<10)
	n := startH2C(t, setup{
		rules: "rules: [{id: slots, key: [client_ip], algorithm: concurrency, limit: 1000, window: 1h}]",
		origin: func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			_, _ = w.Write(large)
		},
		config: func(c *config.Config) {
			c.Listen.HTTP2.MaxStreams = 20
			c.Server.ReadTimeout, c.Server.WriteTimeout = 300*time.Millisecond, 300*time.Millisecond
			c.Upstream.StreamTimeout, c.Upstream.Timeout = 300*time.Millisecond, 300*time.Millisecond
		},
	})
	f := func(name string, window uint32, ends bool, fields ...string) {
		t.Run(name, func(t *testing.T) {
			n := &node{Edge: n.Edge, t: t, public: n.public, admin: n.admin, client: n.client, logs: n.logs}
			a := n.attacker()
			require.NoError(t, a.framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: window}))
			for range 20 {
				_, err := a.open(ends, fields...)
				require.NoError(t, err)
			}
			over := 0
			a.frames(func(f http2.Frame) bool {
				if f.Header().Type == http2.FrameRSTStream || f.Header().Flags.Has(http2.FlagDataEndStream) && f.Header().Type != http2.FrameSettings {
					over++
				}
				return over == 20
			})
			require.Equal(t, 20, over, "each stream is ended")
			n.nothingHeld(1000)
		})
	}
	f("the window stays shut", 0, true)
	f("a window of one byte", 1, true)
	f("a body that never comes", 65535, false, "content-length 100")
	f("a long body that never comes", 65535, false, "content-length 100000")
	f("a body of unknown length that never comes", 65535, false)
}

// Beyond all connections' streams a request gets 503, and nothing is counted for it.
func TestHTTP2TooManyStreams(t *testing.T) {
	release := make(chan struct{})
	n := startH2C(t, setup{
		rules:  "rules: [{id: per-client, key: [client_ip], algorithm: fixed_window, limit: 100, window: 1h}]",
		origin: func(http.ResponseWriter, *http.Request) { <-release },
		config: func(c *config.Config) { c.Server.MaxConnections = 3 },
	})
	answers := make(chan int, 3)
	for range 3 {
		go func() {
			resp, err := n.client.Get("http://" + n.public + "/")
			if err != nil {
				answers <- 0
				return
			}
			_ = resp.Body.Close()
			answers <- resp.StatusCode
		}()
	}
	eventually(t, "three requests are at the origin", func() bool { return n.asked.Load() == 3 })
	a := n.ask("GET", "http://"+n.public+"/")
	require.Equal(t, 503, a.status)
	require.Equal(t, "1", a.header.Get("Retry-After"))
	require.EqualValues(t, 1, n.metric(`weir_http2_refused_total{reason="streams"}`))
	close(release)
	for range 3 {
		require.Equal(t, 200, <-answers)
	}
	require.EqualValues(t, 3, n.metric(`weir_decisions_total{rule="per-client",outcome="allowed",source="memory"}`))
}

// A header must arrive in server.read_timeout, however it is cut up, and while other streams of
// its connection are served.
func TestHTTP2SlowHeaders(t *testing.T) {
	released := make(chan struct{})
	n := startH2C(t, setup{
		origin: func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/slow" {
				<-r.Context().Done()
				released <- struct{}{}
			}
		},
		config: func(c *config.Config) {
			c.Server.ReadTimeout, c.Upstream.Timeout = 300*time.Millisecond, 300*time.Millisecond
		},
	})
	slow := 0.0
	f := func(name string, begin func(*attacker)) {
		t.Run(name, func(t *testing.T) {
			n := &node{Edge: n.Edge, t: t, public: n.public, admin: n.admin, client: n.client, logs: n.logs}
			a := n.attacker()
			a.path = "/slow"
			_, err := a.open(true)
			require.NoError(t, err)
			begin(a)
			a.frames(func(http2.Frame) bool { return false }) // until the connection ends
			<-released
			eventually(t, "nothing is left open", func() bool { return n.http2.Connections() == 0 && n.http2.Streams() == 0 })
			slow++
			require.EqualValues(t, slow, n.metric(`weir_http2_refused_total{reason="slow_headers"}`))
		})
	}
	head := func(a *attacker, payload int, fragment []byte) []byte {
		b := []byte{0, 0, byte(payload), byte(http2.FrameHeaders), byte(http2.FlagHeadersEndHeaders | http2.FlagHeadersEndStream), 0, 0, 0, byte(a.next)}
		return append(b, fragment...)
	}
	f("part of a frame's head", func(a *attacker) {
		_, err := a.conn.Write(head(a, 100, nil)[:3])
		require.NoError(a.t, err)
	})
	f("part of HEADERS", func(a *attacker) {
		_, err := a.conn.Write(head(a, 255, a.head()))
		require.NoError(a.t, err)
	})
	f("HEADERS without an end", func(a *attacker) {
		require.NoError(a.t, a.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: a.next, BlockFragment: a.head()}))
	})
	f("CONTINUATION a byte at a time", func(a *attacker) {
		fragment := a.head()
		require.NoError(a.t, a.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: a.next, BlockFragment: fragment[:1]}))
		for i := range 20 {
			require.NoError(a.t, a.framer.WriteContinuation(a.next, false, fragment[i+1:i+2]))
		}
	})

	// Each write ends within the next header, for longer than a header may take.
	a := n.attacker()
	answers := make(chan int)
	const requests = 8
	go func() {
		count := 0
		a.frames(func(f http2.Frame) bool {
			if f.Header().Type == http2.FrameHeaders {
				count++
			}
			return count == requests
		})
		answers <- count
	}()
	var pending []byte
	pause := time.NewTicker(100 * time.Millisecond)
	defer pause.Stop()
	for range requests {
		fragment := a.head()
		whole := head(a, len(fragment), fragment)
		a.next += 2
		_, err := a.conn.Write(append(pending, whole[:12]...))
		require.NoError(t, err)
		pending = append([]byte(nil), whole[12:]...)
		<-pause.C
	}
	_, err := a.conn.Write(pending)
	require.NoError(t, err)
	require.Equal(t, requests, <-answers)
	require.EqualValues(t, slow, n.metric(`weir_http2_refused_total{reason="slow_headers"}`))
}

// Connections without requests hold little, and are closed after server.idle_timeout.
func TestHTTP2IdleConnections(t *testing.T) {
	const connections, each = 1000, 96 << 10
	n := startH2C(t, setup{config: func(c *config.Config) { c.Server.IdleTimeout = patience }})
	held := func() int64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc + m.StackInuse)
	}
	before := held()
	var clients []*attacker
	for range connections {
		a := n.attacker()
		_, err := a.open(true)
		require.NoError(t, err)
		clients = append(clients, a)
	}
	for _, a := range clients {
		require.False(t, a.frames(func(f http2.Frame) bool { return f.Header().Type == http2.FrameHeaders }))
	}
	require.EqualValues(t, connections, n.metric("weir_http2_connections"))
	eventually(t, "no stream is open", func() bool { return n.http2.Streams() == 0 })
	grown := held() - before
	t.Logf("%d bytes for each connection, and its client", grown/connections)
	require.Less(t, grown, int64(connections*each))
	for _, a := range clients {
		_ = a.conn.Close()
	}
	eventually(t, "all are gone", func() bool { return n.http2.Connections() == 0 })

	n = startH2C(t, setup{config: func(c *config.Config) { c.Server.IdleTimeout = 300 * time.Millisecond }})
	code, said := n.attacker().goesAway()
	require.True(t, said)
	require.Equal(t, http2.ErrCodeNo, code)
}

// A client that opens its windows by a byte at a time gets a frame for each at most, and one that
// changes all windows at once, up and down, is cut off, with answers waiting in its streams.
func TestHTTP2WindowGames(t *testing.T) {
	const streams, bytesEach = 20, 50
	n := startH2C(t, setup{
		rules:  "rules: [{id: slots, key: [client_ip], algorithm: concurrency, limit: 1000, window: 1h}]",
		origin: func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(bytes.Repeat([]byte("x"), bytesEach)) },
	})
	a := n.attacker()
	require.NoError(t, a.framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0}))
	for range streams {
		_, err := a.open(true)
		require.NoError(t, err)
	}
	for range bytesEach {
		for id := uint32(1); id < 2*streams; id += 2 {
			require.NoError(t, a.framer.WriteWindowUpdate(id, 1))
		}
	}
	data, ended := 0, 0
	a.frames(func(f http2.Frame) bool {
		if f.Header().Type == http2.FrameData {
			data++
			if f.Header().Flags.Has(http2.FlagDataEndStream) {
				ended++
			}
		}
		return ended == streams
	})
	require.Equal(t, streams, ended)
	require.LessOrEqual(t, data, streams*bytesEach)
	n.nothingHeld(1000)

	a = n.attacker()
	require.NoError(t, a.framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0}))
	for range streams {
		_, err := a.open(true)
		require.NoError(t, err)
	}
	size := uint32(0)
	a.floods(func() error {
		size ^= 1
		return a.framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: size})
	})
	require.EqualValues(t, 1, n.metric(`weir_http2_refused_total{reason="control_frames"}`))
	n.nothingHeld(1000)
}
