package edge

import (
	"bytes"
	"io"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/weir-edge/weir/internal/edge/config"
	"github.com/weir-edge/weir/internal/testenv"
)

// attacker returns a client that sends requests frame by frame.
func (n *node) attacker() *testenv.Attacker {
	n.t.Helper()
	return testenv.Attack(n.t, n.public, "/", ":method GET", ":scheme http", ":authority a.example")
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
		id, err := a.Open(true)
		require.NoError(t, err)
		<-began
		require.NoError(t, a.WriteRSTStream(id, http2.ErrCodeCancel))
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
		config: func(c *config.Config) { c.Server.ReadTimeout, c.Upstream.Timeout = patience, patience },
	})
	flood := func(name, reason string, prepare func(*testenv.Attacker), send func(*testenv.Attacker) error) {
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
			sent, _ := a.Flood(func() error { return send(a) })
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
	flood("rapid reset", "resets", nil, func(a *testenv.Attacker) error {
		id, err := a.Open(true)
		if err != nil {
			return err
		}
		return a.WriteRSTStream(id, http2.ErrCodeCancel)
	})
	flood("rapid reset of slow requests", "resets", func(a *testenv.Attacker) { a.Path = "/slow" }, func(a *testenv.Attacker) error {
		id, err := a.Open(true)
		if err != nil {
			return err
		}
		return a.WriteRSTStream(id, http2.ErrCodeCancel)
	})
	flood("streams that are never closed", "resets", nil, func(a *testenv.Attacker) error {
		_, err := a.Open(false, "x-y z")
		return err
	})
	flood("resets provoked", "resets", nil, func(a *testenv.Attacker) error { // as in CVE-2025-8671
		id, err := a.Open(true)
		if err != nil {
			return err
		}
		return a.WriteRawFrame(http2.FrameWindowUpdate, 0, id, []byte{0, 0, 0, 0})
	})
	flood("SETTINGS", "control_frames", nil, func(a *testenv.Attacker) error { return a.WriteSettings() })
	flood("PING", "control_frames", nil, func(a *testenv.Attacker) error { return a.WritePing(false, [8]byte{}) })
	flood("PRIORITY", "control_frames", nil, func(a *testenv.Attacker) error {
		return a.WritePriority(1, http2.PriorityParam{StreamDep: 3})
	})
	flood("unknown frames", "control_frames", nil, func(a *testenv.Attacker) error { return a.WriteRawFrame(0xbe, 0, 0, nil) })
	flood("WINDOW_UPDATE", "window_updates", nil, func(a *testenv.Attacker) error { return a.WriteWindowUpdate(0, 1) })
	flood("empty DATA", "empty_data", func(a *testenv.Attacker) {
		_, err := a.Open(false)
		require.NoError(t, err)
	}, func(a *testenv.Attacker) error { return a.WriteData(1, false, nil) })
	flood("CONTINUATION", "continuations", func(a *testenv.Attacker) {
		require.NoError(t, a.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: a.Header()}))
	}, func(a *testenv.Attacker) error { return a.WriteContinuation(1, false, nil) })
	flood("CONTINUATION with fields", "protocol", func(a *testenv.Attacker) {
		require.NoError(t, a.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: a.Header()}))
	}, func(a *testenv.Attacker) error {
		return a.WriteContinuation(1, false, a.Encode(hpack.HeaderField{Name: "x", Value: strings.Repeat("y", 4000), Sensitive: true}))
	})
	// An HPACK bomb: a field of 4000 bytes in the table, and each byte after it names it again.
	flood("HPACK bomb", "protocol", func(a *testenv.Attacker) {
		require.NoError(t, a.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: a.Header("x " + strings.Repeat("y", 3900))}))
	}, func(a *testenv.Attacker) error {
		return a.WriteContinuation(1, false, bytes.Repeat([]byte{0x80 | 62}, 16<<10))
	})
	// The node serves others as before.
	require.Equal(t, 200, n.ask("GET", "http://"+n.public+"/").status)
}

// A client that takes nothing of its answers, or sends bodies without end, holds what one
// connection may hold, for as long as it may.
func TestHTTP2SlowStreams(t *testing.T) {
	const limit = 2 * time.Second // pauses are far shorter, also those of a busy machine
	large := bytes.Repeat([]byte("x"), 100<<10)
	n := startH2C(t, setup{
		rules: "rules: [{id: slots, key: [client_ip], algorithm: concurrency, limit: 1000, window: 1h}]",
		origin: func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			_, _ = w.Write(large)
		},
		config: func(c *config.Config) {
			c.Listen.HTTP2.MaxStreams = 20
			c.Server.ReadTimeout, c.Server.WriteTimeout = limit, limit
			c.Upstream.StreamTimeout, c.Upstream.Timeout = limit, limit
		},
	})
	f := func(name string, window uint32, ends bool, fields ...string) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := &node{Edge: n.Edge, t: t, public: n.public, admin: n.admin, client: &http.Client{Timeout: patience}, logs: n.logs}
			a := n.attacker()
			require.NoError(t, a.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: window}))
			for range 20 {
				_, err := a.Open(ends, fields...)
				require.NoError(t, err)
			}
			over := 0
			a.Frames(func(f http2.Frame) bool {
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
			c.Server.ReadTimeout, c.Upstream.Timeout = time.Second, 300*time.Millisecond
		},
	})
	slow := 0.0
	f := func(name string, begin func(*testenv.Attacker)) {
		t.Run(name, func(t *testing.T) {
			n := &node{Edge: n.Edge, t: t, public: n.public, admin: n.admin, client: n.client, logs: n.logs}
			a := n.attacker()
			a.Path = "/slow"
			_, err := a.Open(true)
			require.NoError(t, err)
			begin(a)
			a.Frames(func(http2.Frame) bool { return false }) // until the connection ends
			<-released
			eventually(t, "nothing is left open", func() bool { return n.listeners.HTTP2.Connections() == 0 && n.listeners.HTTP2.Streams() == 0 })
			slow++
			require.EqualValues(t, slow, n.metric(`weir_http2_refused_total{reason="slow_headers"}`))
		})
	}
	head := func(a *testenv.Attacker, payload int, fragment []byte) []byte {
		b := []byte{0, 0, byte(payload), byte(http2.FrameHeaders), byte(http2.FlagHeadersEndHeaders | http2.FlagHeadersEndStream), 0, 0, 0, byte(a.Next)}
		return append(b, fragment...)
	}
	f("part of a frame's head", func(a *testenv.Attacker) {
		_, err := a.Conn.Write(head(a, 100, nil)[:3])
		require.NoError(a.T, err)
	})
	f("part of HEADERS", func(a *testenv.Attacker) {
		_, err := a.Conn.Write(head(a, 255, a.Header()))
		require.NoError(a.T, err)
	})
	f("HEADERS without an end", func(a *testenv.Attacker) {
		require.NoError(a.T, a.WriteHeaders(http2.HeadersFrameParam{StreamID: a.Next, BlockFragment: a.Header()}))
	})
	f("CONTINUATION a byte at a time", func(a *testenv.Attacker) {
		fragment := a.Header("x " + strings.Repeat("y", 100)) // longer than is sent
		require.NoError(a.T, a.WriteHeaders(http2.HeadersFrameParam{StreamID: a.Next, BlockFragment: fragment[:1]}))
		for i := range 20 {
			require.NoError(a.T, a.WriteContinuation(a.Next, false, fragment[i+1:i+2]))
		}
	})

	// Each write ends within the next header, for longer than a header may take.
	const requests = 8
	drips := func() (answered int, late bool) {
		a := n.attacker()
		answers := make(chan int)
		go func() {
			count := 0
			a.Frames(func(f http2.Frame) bool {
				if f.Header().Type == http2.FrameHeaders {
					count++
				}
				return count == requests
			})
			answers <- count
		}()
		var pending []byte
		pause := time.NewTicker(200 * time.Millisecond)
		defer pause.Stop()
		began := time.Now()
		write := func(b []byte) {
			_, _ = a.Conn.Write(b) // it is closed if this one is late
			late, began = late || time.Since(began) > 600*time.Millisecond, time.Now()
		}
		for range requests {
			fragment := a.Header()
			whole := head(a, len(fragment), fragment)
			a.Next += 2
			write(append(pending, whole[:12]...))
			pending = append([]byte(nil), whole[12:]...)
			<-pause.C
		}
		write(pending)
		return <-answers, late
	}
	eventually(t, "all are answered", func() bool {
		slow = n.metric(`weir_http2_refused_total{reason="slow_headers"}`)
		answered, late := drips()
		require.True(t, late || answered == requests)
		return !late // else the client paused almost as long as a header may take
	})
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
	var clients []*testenv.Attacker
	for range connections {
		a := n.attacker()
		_, err := a.Open(true)
		require.NoError(t, err)
		clients = append(clients, a)
	}
	for _, a := range clients {
		require.False(t, a.Frames(func(f http2.Frame) bool { return f.Header().Type == http2.FrameHeaders }))
	}
	require.EqualValues(t, connections, n.metric("weir_http2_connections"))
	eventually(t, "no stream is open", func() bool { return n.listeners.HTTP2.Streams() == 0 })
	grown := held() - before
	t.Logf("%d bytes for each connection, and its client", grown/connections)
	require.Less(t, grown, int64(connections*each))
	for _, a := range clients {
		_ = a.Conn.Close()
	}
	eventually(t, "all are gone", func() bool { return n.listeners.HTTP2.Connections() == 0 })

	n = startH2C(t, setup{config: func(c *config.Config) { c.Server.IdleTimeout = 300 * time.Millisecond }})
	code, said := n.attacker().Ends()
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
	require.NoError(t, a.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0}))
	for range streams {
		_, err := a.Open(true)
		require.NoError(t, err)
	}
	for range bytesEach {
		for id := uint32(1); id < 2*streams; id += 2 {
			require.NoError(t, a.WriteWindowUpdate(id, 1))
		}
	}
	data, ended := 0, 0
	a.Frames(func(f http2.Frame) bool {
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
	require.NoError(t, a.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0}))
	for range streams {
		_, err := a.Open(true)
		require.NoError(t, err)
	}
	size := uint32(0)
	a.Flood(func() error {
		size ^= 1
		return a.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: size})
	})
	require.EqualValues(t, 1, n.metric(`weir_http2_refused_total{reason="control_frames"}`))
	n.nothingHeld(1000)
}
