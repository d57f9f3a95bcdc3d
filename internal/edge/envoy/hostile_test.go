package envoy

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/weir-edge/weir/internal/testenv"
)

const (
	patience = testenv.Patience
	method   = "/weir.Test/Ask"
)

// asker is a service whose calls end as soon as their message has come.
type asker struct{ asked atomic.Int64 }

func (a *asker) Name() string { return "weir.Test" }

func (a *asker) Register(r grpc.ServiceRegistrar) {
	r.RegisterService(&grpc.ServiceDesc{ServiceName: a.Name(), HandlerType: (*any)(nil), Methods: []grpc.MethodDesc{{
		MethodName: "Ask",
		Handler: func(_ any, _ context.Context, read func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
			m := &healthpb.HealthCheckRequest{}
			if err := read(m); err != nil {
				return nil, err
			}
			a.asked.Add(1)
			return &healthpb.HealthCheckResponse{}, nil
		},
	}}}, a)
}

type victim struct {
	*asker
	t       *testing.T
	server  *Server
	address string
	refused [Refusals]atomic.Int64
}

func attacked(t *testing.T, change func(*Config)) *victim {
	t.Helper()
	return attackedBehind(t, func(ln net.Listener) net.Listener { return ln }, change)
}

// attackedBehind starts a server whose listener is wrapped.
func attackedBehind(t *testing.T, wrap func(net.Listener) net.Listener, change func(*Config)) *victim {
	t.Helper()
	v := &victim{asker: &asker{}, t: t}
	c := Config{Services: []Service{v.asker}, MaxMessage: 4 << 10, Refused: func(why Refusal) { v.refused[why].Add(1) }, Ready: func() bool { return true }}
	if change != nil {
		change(&c)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	v.server, v.address = NewServer(c), ln.Addr().String()
	done := make(chan error, 1)
	go func() { done <- v.server.Serve(wrap(ln)) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		v.server.Drain(ctx)
		require.NoError(t, <-done)
	})
	return v
}

// answers requires that another connection is served.
func (v *victim) answers() {
	v.t.Helper()
	conn, err := grpc.NewClient(v.address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(v.t, err)
	defer conn.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	require.NoError(v.t, conn.Invoke(ctx, method, &healthpb.HealthCheckRequest{}, &healthpb.HealthCheckResponse{}))
}

// attack begins HTTP/2 for calls frame by frame.
func (v *victim) attack() *testenv.Attacker {
	v.t.Helper()
	return testenv.Attack(v.t, v.address, method, ":method POST", ":scheme http", ":authority x", "content-type application/grpc", "te trailers")
}

// connections returns how many are open.
func (v *victim) connections() int {
	v.server.mu.Lock()
	defer v.server.mu.Unlock()
	return len(v.server.conns)
}

func TestBoundsAreAnnounced(t *testing.T) {
	a := attacked(t, nil).attack()
	require.False(t, a.Frames(func(f http2.Frame) bool {
		s, ok := f.(*http2.SettingsFrame)
		if !ok || s.IsAck() {
			return false
		}
		streams, _ := s.Value(http2.SettingMaxConcurrentStreams)
		header, _ := s.Value(http2.SettingMaxHeaderListSize)
		require.EqualValues(t, maxStreams, streams)
		require.EqualValues(t, maxHeaders, header)
		return true
	}))
}

// A header in endless CONTINUATION frames ends the connection, and a header that is too large to
// read, or grows by reference to a table, is refused without serving the call.
func TestHugeHeadersAreNotServed(t *testing.T) {
	v := attacked(t, nil)
	a := v.attack()
	first := true
	a.Flood(func() error {
		if first {
			first = false
			return a.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: a.Header()})
		}
		return a.WriteContinuation(1, false, bytes.Repeat([]byte{0}, 16<<10))
	})
	v.answers()

	b := v.attack()
	bomb := slices.Repeat([]string{"x " + strings.Repeat("y", 3000)}, 3000) // each after the first is one byte
	require.NoError(t, b.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: b.Header(bomb...), EndHeaders: true}))
	require.False(t, b.Frames(func(f http2.Frame) bool { return f.Header().Type == http2.FrameRSTStream }), "the stream is reset")
	v.answers()
	require.EqualValues(t, 2, v.asked.Load(), "only the other callers were answered")
}

// A connection that says nothing, or stops in the middle of its preface, ends.
func TestHalfOpenConnectionsEnd(t *testing.T) {
	v := attacked(t, func(c *Config) { c.handshake = time.Second })
	for _, said := range []string{"", http2.ClientPreface[:10], http2.ClientPreface, http2.ClientPreface + "\x00\x00"} {
		conn, err := net.Dial("tcp", v.address)
		require.NoError(t, err)
		defer conn.Close()
		require.NoError(t, conn.SetDeadline(time.Now().Add(patience)))
		_, err = io.WriteString(conn, said)
		require.NoError(t, err)
		_, err = io.Copy(io.Discard, conn)
		var timeout net.Error
		require.False(t, errors.As(err, &timeout) && timeout.Timeout(), "%q stays open", said)
	}
	require.Eventually(t, func() bool { return v.connections() == 0 }, patience, time.Millisecond)
}

// A call whose message never comes ends, and its goroutine with it; so does one in parts.
func TestSlowCallsEnd(t *testing.T) {
	v := attacked(t, func(c *Config) { c.callTime = time.Second })
	before := runtime.NumGoroutine()
	a := v.attack()
	const calls = 500
	for i := range calls {
		stream, err := a.Open(false)
		require.NoError(t, err)
		if i%2 == 0 { // a message of 100 bytes, of which one comes
			require.NoError(t, a.WriteData(stream, false, []byte{0, 0, 0, 0, 100, 1}))
		}
	}
	ended := 0
	require.False(t, a.Frames(func(f http2.Frame) bool {
		if h, ok := f.(*http2.HeadersFrame); ok && h.StreamEnded() {
			ended++
		}
		return ended == calls
	}), "all calls end")
	require.Eventually(t, func() bool { return runtime.NumGoroutine() < before+workers+50 }, patience, time.Millisecond)
	require.Zero(t, v.asked.Load())
	v.answers()
}

// Streams that are opened and reset leave nothing behind, and others are answered meanwhile.
func TestRapidResetsLeaveNothing(t *testing.T) {
	v := attacked(t, nil)
	before := runtime.NumGoroutine()
	a := v.attack()
	go func() { _, _ = io.Copy(io.Discard, a.Conn) }()
	most := 0
	for i := range 20_000 {
		stream, err := a.Open(false)
		if err == nil {
			err = a.WriteRSTStream(stream, http2.ErrCodeCancel)
		}
		if err != nil {
			break
		}
		if i%1000 == 0 {
			most = max(most, runtime.NumGoroutine())
			v.answers()
		}
	}
	require.Less(t, most, before+maxStreams+workers+50, "streams are bounded, whatever the client resets")
	require.Eventually(t, func() bool { return runtime.NumGoroutine() < before+workers+50 }, patience, time.Millisecond)
	v.answers()
}

// stingy is a listener whose connections hold few bytes that their callers have not read.
type stingy struct{ net.Listener }

func (l stingy) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err == nil {
		err = conn.(*net.TCPConn).SetWriteBuffer(4 << 10)
	}
	return conn, err
}

// heap returns how many bytes are in use.
func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// A caller that never reads loses its connection, whatever it sends, and fills no memory before.
func TestCallersThatNeverReadAreCutOff(t *testing.T) {
	f := func(name string, send func(*testenv.Attacker) error) {
		t.Run(name, func(t *testing.T) {
			v := attackedBehind(t, func(ln net.Listener) net.Listener { return stingy{ln} }, func(c *Config) { c.writeTime, c.extra = time.Second, unlimited })
			a := v.attack()
			require.NoError(t, a.Conn.(*net.TCPConn).SetReadBuffer(4<<10))
			require.NoError(t, a.Conn.SetWriteDeadline(time.Now().Add(patience)))
			a.Path = method + strings.Repeat("x", 12<<10)
			var err error
			for range 100 { // answers that repeat the path fill the buffers, so the server's next write waits
				if err == nil {
					_, err = a.Open(true)
				}
			}
			a.Path = method
			before, most, sent := heap(), int64(0), 0
			for ; err == nil; sent++ {
				if sent%20_000 == 0 {
					most = max(most, heap())
				}
				err = send(a)
			}
			require.NotErrorIs(t, err, os.ErrDeadlineExceeded, "the connection stays open")
			t.Logf("%d frames sent; the heap grew by %d KiB at most", sent, (most-before)>>10)
			require.Less(t, most-before, int64(16<<20))
			require.Eventually(t, func() bool { return v.connections() == 0 }, patience, time.Millisecond)
			v.answers()
		})
	}
	f("WINDOW_UPDATE", func(a *testenv.Attacker) error { return a.WriteWindowUpdate(0, 1) })
	f("WINDOW_UPDATE of a stream", func(a *testenv.Attacker) error { return a.WriteWindowUpdate(1, 1) })
	f("SETTINGS", func(a *testenv.Attacker) error { return a.WriteSettings() })
	f("PING", func(a *testenv.Attacker) error { return a.WritePing(false, [8]byte{}) })
	// PINGs of the server to measure the bandwidth, answered before they are sent, made it send more.
	f("answers to PINGs", func(a *testenv.Attacker) error {
		if err := a.WriteData(1, false, []byte("x")); err != nil {
			return err
		}
		return a.WritePing(true, [8]byte{2, 4, 16, 16, 9, 14, 7, 7})
	})
	f("RST_STREAM", func(a *testenv.Attacker) error { return a.WriteRSTStream(1, http2.ErrCodeCancel) })
	f("streams", func(a *testenv.Attacker) error { _, err := a.Open(true); return err })
	f("streams and resets", func(a *testenv.Attacker) error {
		id, err := a.Open(false)
		if err == nil {
			err = a.WriteRSTStream(id, http2.ErrCodeCancel)
		}
		return err
	})
	// gRPC does not hold a client to the window of the connection, and queues its updates.
	data := make([]byte, 16<<10)
	f("DATA of a stream that is over", func(a *testenv.Attacker) error { return a.WriteData(1, false, data) })
	f("padded DATA", func(a *testenv.Attacker) error { return a.WriteDataPadded(1, false, nil, data[:255]) })
	f("PRIORITY", func(a *testenv.Attacker) error { return a.WritePriority(1, http2.PriorityParam{StreamDep: 3}) })
	f("empty DATA", func(a *testenv.Attacker) error { return a.WriteData(1, false, nil) })
}

// Streams that use reflection are few, because its answers are large; others do not wait for them.
func TestReflectionIsBounded(t *testing.T) {
	v := attacked(t, nil)
	a := v.attack()
	a.Path = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"
	for range maxReflections {
		_, err := a.Open(false)
		require.NoError(t, err)
	}
	last, err := a.Open(false)
	require.NoError(t, err)
	require.False(t, a.Frames(func(f http2.Frame) bool { h, ok := f.(*http2.HeadersFrame); return ok && h.StreamID == last }), "it is refused")
	require.EqualValues(t, maxReflections, v.server.reflections.Load())
	require.Zero(t, v.server.watches.Load())
	v.answers()
	require.NoError(t, a.Conn.Close())
	require.Eventually(t, func() bool { return v.server.reflections.Load() == 0 }, patience, time.Millisecond)
}

// Streams that only watch are bounded over all connections.
func TestWatchesAreBounded(t *testing.T) {
	v := attacked(t, nil)
	conn, err := grpc.NewClient(v.address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	defer conn.Close()
	v.server.watches.Store(maxWatches)
	client := healthpb.NewHealthClient(conn)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	_, err = client.Check(ctx, &healthpb.HealthCheckRequest{})
	require.ErrorContains(t, err, "too many streams")
	v.server.watches.Store(0)
	_, err = client.Check(ctx, &healthpb.HealthCheckRequest{})
	require.NoError(t, err)
	require.Eventually(t, func() bool { return v.server.watches.Load() == 0 }, patience, time.Millisecond)
	v.answers()
}
