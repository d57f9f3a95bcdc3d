package h2

import (
	"bytes"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"
	"golang.org/x/net/http2"

	"github.com/weir-edge/weir/internal/testenv"
)

// still is a connection that reads the same frames again and again, and swallows what is written.
type still struct {
	net.Conn
	frames []byte
}

func (s still) Read(b []byte) (int, error)  { return copy(b, s.frames), nil }
func (s still) Write(b []byte) (int, error) { return len(b), nil }

// exchanges is how many requests pass with one read, and how many answers with one write.
const exchanges = 16

// guarded returns a function that lets requests and their answers pass a guard.
func guarded(tb testing.TB) func() {
	stream := uint32(1)
	build := func(write func(*http2.Framer)) []byte {
		var wire bytes.Buffer
		f := http2.NewFramer(&wire, nil)
		for range exchanges {
			write(f)
			stream += 2
		}
		return wire.Bytes()
	}
	header := bytes.Repeat([]byte{0x82}, 60)
	read := build(func(f *http2.Framer) {
		_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: header, EndHeaders: true, EndStream: true})
		_ = f.WriteWindowUpdate(0, 100)
	})
	stream = 1
	answer := build(func(f *http2.Framer) {
		_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: header, EndHeaders: true})
		_ = f.WriteData(stream, true, make([]byte, wholeData))
	})
	g := newGuard(still{frames: read}, true, time.Second, func(Reason) {})
	buf := make([]byte, 16<<10)
	return func() {
		g.last = 0 // the streams are new again
		if _, err := g.Read(buf); err != nil {
			tb.Fatal(err)
		}
		if _, err := g.Write(answer); err != nil {
			tb.Fatal(err)
		}
	}
}

// BenchmarkGuard measures what following the frames of a request and its answer adds.
func BenchmarkGuard(b *testing.B) {
	exchange := guarded(b)
	b.ReportAllocs()
	for b.Loop() {
		exchange()
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/exchanges/4, "ns/frame")
}

func TestGuardAllocatesNothing(t *testing.T) {
	require.Zero(t, testing.AllocsPerRun(100, guarded(t)))
}

// reads counts the reads of a connection.
type reads struct {
	net.Conn
	n atomic.Int64
}

func (r *reads) Read(b []byte) (int, error) { r.n.Add(1); return r.Conn.Read(b) }

// Frames that have arrived together are read together.
func TestFramesAreReadTogether(t *testing.T) {
	const frames = 10_000
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	got := make(chan int64, 1)
	s, err := New(Config{MaxStreams: 10, MaxStreamsAll: 10, MaxHeaderBytes: 4 << 10, ReadTimeout: testenv.Patience, WriteTimeout: testenv.Patience, StreamTimeout: testenv.Patience,
		Refused: func(Reason) {}, Serve: func(ctx *fasthttp.RequestCtx) {
			n, _ := io.Copy(io.Discard, ctx.RequestBodyStream())
			got <- n
		}})
	require.NoError(t, err)
	a := testenv.Attack(t, ln.Addr().String(), "/", ":method POST", ":scheme http", ":authority a")
	conn, err := ln.Accept()
	require.NoError(t, err)
	r, served := &reads{Conn: conn}, make(chan struct{})
	go func() { defer close(served); s.ServeConn(r, false, false) }()
	id, err := a.Open(false)
	require.NoError(t, err)
	var wire bytes.Buffer
	f := http2.NewFramer(&wire, nil)
	for i := range frames {
		require.NoError(t, f.WriteData(id, i == frames-1, []byte("x")))
	}
	_, err = a.Conn.Write(wire.Bytes())
	require.NoError(t, err)
	require.EqualValues(t, frames, <-got)
	t.Log(r.n.Load(), "reads of", frames, "frames")
	require.Less(t, r.n.Load(), int64(frames/20))
	require.NoError(t, a.Conn.Close())
	<-served
}
