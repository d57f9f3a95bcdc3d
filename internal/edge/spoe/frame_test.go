package spoe

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

// The examples and bounds of HAProxy's doc/SPOE.txt, section 3.1.
func TestNumbers(t *testing.T) {
	for n, wire := range map[uint64][]byte{
		0: {0}, 239: {0xef}, 240: {0xf0, 0}, 2287: {0xff, 0x7f}, 2288: {0xf0, 0x80, 0}, 264431: {0xff, 0xff, 0x7f}, 264432: {0xf0, 0x80, 0x80, 0},
	} {
		require.Equal(t, wire, appendNumber(nil, n), "%d", n)
	}
	for _, n := range []uint64{1, 1 << 14, math.MaxUint32, math.MaxInt64, math.MaxUint64} {
		r := reader(appendNumber(nil, n))
		got, err := r.number()
		require.NoError(t, err)
		require.Equal(t, n, got)
		require.Empty(t, r)
	}
	for _, short := range [][]byte{{}, {0xf0}, {0xff, 0xff}, {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0}} {
		r := reader(short)
		_, err := r.number()
		require.Error(t, err, "%x", short)
	}
}

func TestHello(t *testing.T) {
	require.Contains(t, string(appendHello(nil, 16380)), "pipelining", "without it, HAProxy 2.6 forgets requests that wait for a connection")
	pairs := func(build ...func([]byte) []byte) []byte {
		b := begin(nil, haproxyHello, 0, 0)
		for _, f := range build {
			b = f(b)
		}
		return b[lengthSize:]
	}
	versions := func(v string) func([]byte) []byte {
		return func(b []byte) []byte { return appendString(appendText(b, "supported-versions"), v) }
	}
	size := func(n uint32) func([]byte) []byte {
		return func(b []byte) []byte { return appendUint32(appendText(b, "max-frame-size"), n) }
	}
	h, err := readHello(pairs(versions("1.0, 2.0"), size(16380)))
	require.NoError(t, err)
	require.EqualValues(t, 16380, h.maxFrame)
	require.False(t, h.check)
	h, err = readHello(pairs(versions("2.0"), size(256), func(b []byte) []byte { return append(appendText(b, "healthcheck"), typeBool|flagTrue) }))
	require.NoError(t, err)
	require.True(t, h.check)
	for want, b := range map[error][]byte{
		statusNoVersion:  pairs(size(16380)),
		statusVersion:    pairs(versions("1.0"), size(16380)),
		statusNoSize:     pairs(versions("2.0")),
		statusSize:       pairs(versions("2.0"), size(255)),
		statusInvalid:    pairs(func(b []byte) []byte { return append(b, 0xff) }),
		errHello:         appendHello(nil, 16380)[lengthSize:],
		statusFragmented: {haproxyHello, 0, 0, 0, 0, 0, 0},
	} {
		_, err := readHello(b)
		require.ErrorIs(t, err, want)
	}
}

// A connection does not keep the room that a frame full of tiny headers took.
func TestTinyHeadersAreNotKept(t *testing.T) {
	var q authRequest
	f := func(n int) {
		var b []byte
		for range n {
			b = append(b, 1, 'x', 0)
		}
		require.True(t, q.readHeaders(append(b, 0, 0)))
		require.Len(t, q.headers, n)
		q.reset()
		require.LessOrEqual(t, cap(q.headers), keptHeaders)
	}
	f(20_000)
	f(100)
	require.NotZero(t, cap(q.headers), "usual ones are reused")
}

// Whatever arrives is read without a panic, and no slice reaches beyond the frame.
func FuzzFrames(f *testing.F) {
	f.Add(appendHello(nil, 16380)[lengthSize:])
	b := appendText(begin(nil, haproxyNotify, 1, 1), "decide")
	b = appendString(appendText(append(b, 2), "method"), "GET")
	b = append(append(appendText(b, "client"), typeIPv4), 127, 0, 0, 1)
	f.Add(b[lengthSize:])
	f.Add([]byte{haproxyNotify, 0, 0, 0, 1, 1, 1, 0, 255})
	f.Fuzz(func(t *testing.T, b []byte) {
		_, _ = readHello(b)
		frame, err := readFrame(b)
		if err != nil {
			return
		}
		var q authRequest
		if _, err := q.read(frame.payload); err == nil {
			total := len(q.Method) + len(q.target)
			for _, h := range q.headers {
				total += len(h[0]) + len(h[1])
			}
			require.LessOrEqual(t, total, len(b))
		}
		q.reset()
	})
}
