package testenv

import (
	"bytes"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// Attacker is a client that speaks HTTP/2 frame by frame.
type Attacker struct {
	*http2.Framer
	Conn net.Conn
	Next uint32 // the stream that Open begins
	Path string // of requests
	T    testing.TB

	written int // bytes
	request []string
	header  bytes.Buffer
	encoder *hpack.Encoder
}

// Attack connects to addr, where it begins HTTP/2. Each request has these fields besides its
// path, such as ":method GET".
func Attack(t testing.TB, addr, path string, request ...string) *Attacker {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	a := &Attacker{Conn: conn, Next: 1, Path: path, T: t, request: request}
	a.Framer = http2.NewFramer(a, conn)
	a.AllowIllegalWrites = true
	a.encoder = hpack.NewEncoder(&a.header)
	_, err = io.WriteString(conn, http2.ClientPreface)
	require.NoError(t, err)
	require.NoError(t, a.WriteSettings())
	return a
}

// Write implements io.Writer, for the framer.
func (a *Attacker) Write(b []byte) (int, error) {
	n, err := a.Conn.Write(b)
	a.written += n
	return n, err
}

// Encode returns a header of these fields, which is valid until the next one.
func (a *Attacker) Encode(fields ...hpack.HeaderField) []byte {
	a.header.Reset()
	for _, f := range fields {
		_ = a.encoder.WriteField(f) // to memory, which does not fail
	}
	return a.header.Bytes()
}

// Header returns the header of a request with more fields, which is valid until the next one.
func (a *Attacker) Header(more ...string) []byte {
	var fields []hpack.HeaderField
	for _, list := range [][]string{{":path " + a.Path}, a.request, more} {
		for _, f := range list {
			name, value, _ := strings.Cut(f, " ")
			fields = append(fields, hpack.HeaderField{Name: name, Value: value})
		}
	}
	return a.Encode(fields...)
}

// Stream returns the number of the next stream.
func (a *Attacker) Stream() uint32 {
	a.Next += 2
	return a.Next - 2
}

// Open begins a stream, and ends the request if ends is true.
func (a *Attacker) Open(ends bool, more ...string) (stream uint32, err error) {
	stream = a.Stream()
	return stream, a.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: a.Header(more...), EndStream: ends, EndHeaders: true})
}

// Frames reads frames until stop returns true, or the connection ends.
func (a *Attacker) Frames(stop func(http2.Frame) bool) (closed bool) {
	a.T.Helper()
	_ = a.Conn.SetReadDeadline(time.Now().Add(Patience))
	for {
		f, err := a.ReadFrame()
		var timeout net.Error
		if errors.As(err, &timeout) && timeout.Timeout() {
			require.Fail(a.T, "the connection is neither closed nor answered")
		}
		if err != nil {
			return true
		}
		if stop(f) {
			return false
		}
	}
}

// Ends reads until the connection ends, and returns the code of its GOAWAY and whether there was
// one.
func (a *Attacker) Ends() (code http2.ErrCode, received bool) {
	a.T.Helper()
	a.Frames(func(f http2.Frame) bool {
		if g, ok := f.(*http2.GoAwayFrame); ok {
			code, received = g.ErrCode, true
		}
		return false
	})
	return code, received
}

// Flood sends until the connection ends, and reads meanwhile. It returns how often it sent, and
// the code of GOAWAY.
func (a *Attacker) Flood(send func() error) (sent int, code http2.ErrCode) {
	a.T.Helper()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		code, _ = a.Ends()
	}()
	// A million frames are too many, but a kernel may hold them unread: tcp_rmem goes up to 32 MiB.
	const frames, unread = 1_000_000, 256 << 20
	for send() == nil {
		if sent++; sent >= frames && a.written >= unread {
			_ = a.Conn.Close()
			<-ended
			require.Fail(a.T, "the flood was accepted", "%d frames, %d bytes", sent, a.written)
		}
	}
	<-ended
	return sent, code
}
