package h2

import (
	"bytes"
	"net"
	"testing"
	"time"

	"golang.org/x/net/http2"
)

// still is a connection that reads the same frames again and again, and swallows what is written.
type still struct {
	net.Conn
	frames []byte
}

func (s still) Read(b []byte) (int, error)  { return copy(b, s.frames), nil }
func (s still) Write(b []byte) (int, error) { return len(b), nil }

// BenchmarkGuard measures what following the frames of a request and its answer adds.
func BenchmarkGuard(b *testing.B) {
	const requests = 16 // with one read, or one write
	stream := uint32(1)
	build := func(write func(*http2.Framer)) []byte {
		var wire bytes.Buffer
		f := http2.NewFramer(&wire, nil)
		for range requests {
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
	b.ReportAllocs()
	for b.Loop() {
		g.last = 0 // the streams are new again
		if _, err := g.Read(buf); err != nil {
			b.Fatal(err)
		}
		if _, err := g.Write(answer); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/requests/4, "ns/frame")
}
