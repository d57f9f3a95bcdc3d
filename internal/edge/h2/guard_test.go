package h2

import (
	"bytes"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"
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
