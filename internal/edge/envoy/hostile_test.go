package envoy

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
)

const (
	patience = 20 * time.Second
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
	refused atomic.Int64
}

func attacked(t *testing.T, change func(*Config)) *victim {
	t.Helper()
	v := &victim{asker: &asker{}, t: t}
	c := Config{Services: []Service{v.asker}, MaxMessage: 4 << 10, Refused: func() { v.refused.Add(1) }, Ready: func() bool { return true }}
	if change != nil {
		change(&c)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	v.server, v.address = NewServer(c), ln.Addr().String()
	done := make(chan error, 1)
	go func() { done <- v.server.Serve(ln) }()
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

// attacker speaks HTTP/2 frame by frame.
type attacker struct {
	*http2.Framer
	t      *testing.T
	conn   net.Conn
	header bytes.Buffer
	hpack  *hpack.Encoder
	next   uint32
}

func (v *victim) attack() *attacker {
	v.t.Helper()
	conn, err := net.Dial("tcp", v.address)
	require.NoError(v.t, err)
	v.t.Cleanup(func() { _ = conn.Close() })
	require.NoError(v.t, conn.SetDeadline(time.Now().Add(patience)))
	_, err = io.WriteString(conn, http2.ClientPreface)
	require.NoError(v.t, err)
	a := &attacker{Framer: http2.NewFramer(conn, conn), t: v.t, conn: conn, next: 1}
	a.AllowIllegalWrites = true
	a.hpack = hpack.NewEncoder(&a.header)
	require.NoError(v.t, a.WriteSettings())
	return a
}

// fields encodes the header of a call.
func (a *attacker) fields(more ...hpack.HeaderField) []byte {
	a.header.Reset()
	for _, f := range append([]hpack.HeaderField{
		{Name: ":method", Value: "POST"}, {Name: ":scheme", Value: "http"}, {Name: ":path", Value: method},
		{Name: ":authority", Value: "x"}, {Name: "content-type", Value: "application/grpc"}, {Name: "te", Value: "trailers"},
	}, more...) {
		_ = a.hpack.WriteField(f)
	}
	return a.header.Bytes()
}

// open begins a call whose message does not follow.
func (a *attacker) open() (stream uint32, err error) {
	stream = a.next
	a.next += 2
	return stream, a.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: a.fields(), EndHeaders: true})
}

// until reads frames until one is as wanted. Without one before the connection ends, it fails.
func (a *attacker) until(what string, wanted func(http2.Frame) bool) {
	a.t.Helper()
	for {
		f, err := a.ReadFrame()
		require.NoError(a.t, err, what)
		if wanted(f) {
			return
		}
	}
}

// ends requires that the server closes the connection, and returns the code of its GOAWAY, if any.
func (a *attacker) ends() (code http2.ErrCode) {
	a.t.Helper()
	for {
		f, err := a.ReadFrame()
		var timeout net.Error
		require.False(a.t, errors.As(err, &timeout) && timeout.Timeout(), "the connection stays open")
		if err != nil {
			return code
		}
		if g, ok := f.(*http2.GoAwayFrame); ok {
			code = g.ErrCode
		}
	}
}

// flood writes until the server has closed the connection or the attacker has had enough; it
// reads meanwhile, and returns the code of GOAWAY.
func (a *attacker) flood(n int, write func() error) http2.ErrCode {
	a.t.Helper()
	go func() {
		for range n {
			if write() != nil {
				return
			}
		}
	}()
	return a.ends()
}

func TestBoundsAreAnnounced(t *testing.T) {
	a := attacked(t, nil).attack()
	a.until("SETTINGS", func(f http2.Frame) bool {
		s, ok := f.(*http2.SettingsFrame)
		if !ok || s.IsAck() {
			return false
		}
		streams, _ := s.Value(http2.SettingMaxConcurrentStreams)
		header, _ := s.Value(http2.SettingMaxHeaderListSize)
		require.EqualValues(t, maxStreams, streams)
		require.EqualValues(t, maxHeaders, header)
		return true
	})
}

func TestPingFloodEndsTheConnection(t *testing.T) {
	v := attacked(t, nil)
	require.Equal(t, http2.ErrCodeEnhanceYourCalm, v.attack().pings())
	v.answers()
}

func (a *attacker) pings() http2.ErrCode {
	return a.flood(100_000, func() error { return a.WritePing(false, [8]byte{}) })
}

// A header in endless CONTINUATION frames ends the connection, and a header that is too large to
// read, or grows by reference to a table, is refused without serving the call.
func TestHugeHeadersAreNotServed(t *testing.T) {
	v := attacked(t, nil)
	a := v.attack()
	first := true
	a.flood(100_000, func() error {
		if first {
			first = false
			return a.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: a.fields()})
		}
		return a.WriteContinuation(1, false, bytes.Repeat([]byte{0}, 16<<10))
	})
	v.answers()

	a = v.attack()
	bomb := []hpack.HeaderField{{Name: "x", Value: strings.Repeat("y", 3000)}}
	for range 3000 { // each after the first is one byte
		bomb = append(bomb, bomb[0])
	}
	require.NoError(t, a.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: a.fields(bomb...), EndHeaders: true}))
	a.until("the stream is reset", func(f http2.Frame) bool { return f.Header().Type == http2.FrameRSTStream })
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
	require.Eventually(t, func() bool { return v.server.open.Load() == 0 }, patience, time.Millisecond)
}

// A call whose message never comes ends, and its goroutine with it; so does one in parts.
func TestSlowCallsEnd(t *testing.T) {
	v := attacked(t, func(c *Config) { c.callTime = time.Second })
	before := runtime.NumGoroutine()
	a := v.attack()
	const calls = 500
	for i := range calls {
		stream, err := a.open()
		require.NoError(t, err)
		if i%2 == 0 { // a message of 100 bytes, of which one comes
			require.NoError(t, a.WriteData(stream, false, []byte{0, 0, 0, 0, 100, 1}))
		}
	}
	ended := 0
	a.until("all calls end", func(f http2.Frame) bool {
		if h, ok := f.(*http2.HeadersFrame); ok && h.StreamEnded() {
			ended++
		}
		return ended == calls
	})
	require.Eventually(t, func() bool { return runtime.NumGoroutine() < before+workers+50 }, patience, time.Millisecond)
	require.Zero(t, v.asked.Load())
	v.answers()
}

// Streams that are opened and reset leave nothing behind, and others are answered meanwhile.
func TestRapidResetsLeaveNothing(t *testing.T) {
	v := attacked(t, nil)
	before := runtime.NumGoroutine()
	a := v.attack()
	go func() { _, _ = io.Copy(io.Discard, a.conn) }()
	most := 0
	for i := range 20_000 {
		stream, err := a.open()
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

// The server stops reading from a caller that does not read its answers.
func TestAnswersThatNobodyReadsStopTheCaller(t *testing.T) {
	v := attacked(t, nil)
	a := v.attack()
	require.NoError(t, a.conn.(*net.TCPConn).SetReadBuffer(4<<10))
	var settings bytes.Buffer
	for range 1000 {
		require.NoError(t, http2.NewFramer(&settings, nil).WriteSettings())
	}
	const most = 256 << 20 // far more than the buffers of both sockets
	sent := 0
	for sent < most {
		require.NoError(t, a.conn.SetWriteDeadline(time.Now().Add(2*time.Second)))
		n, err := a.conn.Write(settings.Bytes())
		if sent += n; err != nil {
			break
		}
	}
	require.Less(t, sent, most)
	v.answers()
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
