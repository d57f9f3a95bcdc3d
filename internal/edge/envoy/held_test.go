package envoy

import (
	"bytes"
	"context"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"

	"github.com/weir-edge/weir/internal/testenv"
)

// Streams that are not answered in full take memory: when all take too much, the connection that
// takes the most is closed, and the others are served.
func TestTheGreediestConnectionIsClosed(t *testing.T) {
	message := func(a *testenv.Attacker, stream uint32, ends bool) error {
		return a.WriteData(stream, ends, make([]byte, 5)) // an empty message
	}
	f := func(name string, send func(*testenv.Attacker) error) {
		t.Run(name, func(t *testing.T) {
			v := attacked(t, func(c *Config) { c.maxHeld, c.callTime, c.extra = 4<<20, 2*patience, unlimited })
			modest := v.attack()
			waiting, err := modest.Open(false)
			require.NoError(t, err)
			require.Eventually(t, func() bool { return v.server.held.Load() == streamBytes }, patience, time.Millisecond)
			a := v.attack()
			ended := make(chan struct{})
			go func() { a.Ends(); close(ended) }()
			for err = nil; err == nil && a.Next < 2*maxStreams; {
				err = send(a)
			}
			<-ended
			require.EqualValues(t, 1, v.refused[Memory].Load())
			require.EqualValues(t, streamBytes, v.server.held.Load(), "the modest caller's")
			require.NoError(t, message(modest, waiting, true))
			require.False(t, modest.Frames(func(f http2.Frame) bool { h, ok := f.(*http2.HeadersFrame); return ok && h.StreamEnded() }))
			v.answers()
			require.Eventually(t, func() bool { return v.server.held.Load() == 0 }, patience, time.Millisecond)
		})
	}
	f("streams without a message", func(a *testenv.Attacker) error { _, err := a.Open(false); return err })
	parts := func(length, frames int) func(*testenv.Attacker) error {
		return func(a *testenv.Attacker) error {
			stream, err := a.Open(false)
			if err == nil {
				err = a.WriteData(stream, false, []byte{0, 0, 0, 16, 0}) // 4 KiB follow
			}
			for range frames {
				if err == nil {
					err = a.WriteData(stream, false, make([]byte, length))
				}
			}
			return err
		}
	}
	f("messages that stay incomplete", parts(4000, 1))
	f("messages in small parts", parts(1, 4000))
	f("answers that the caller has no window for", func(a *testenv.Attacker) error {
		if a.Next == 1 {
			if err := a.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize}); err != nil {
				return err
			}
		}
		stream, err := a.Open(false)
		if err == nil {
			err = message(a, stream, true)
		}
		return err
	})
}

// A connection that has been answered, or whose streams either side has reset, takes nothing.
func TestAnsweredStreamsTakeNothing(t *testing.T) {
	v := attacked(t, nil)
	for range 3 {
		v.answers()
	}
	a := v.attack()
	reset, err := a.Open(false)
	require.NoError(t, err)
	require.NoError(t, a.WriteData(reset, false, []byte{0, 0}))
	require.NoError(t, a.WriteRSTStream(reset, http2.ErrCodeCancel))
	a.Path = "/none"
	_, err = a.Open(true)
	require.NoError(t, err)
	require.False(t, a.Frames(func(f http2.Frame) bool { h, ok := f.(*http2.HeadersFrame); return ok && h.StreamEnded() }))
	require.Eventually(t, func() bool { return v.server.held.Load() == 0 }, patience, time.Millisecond)
	require.Zero(t, v.refused[Memory].Load())
}

// still is a connection that reads the same frames again and again, and swallows what is written.
type still struct {
	net.Conn
	frames []byte
}

func (s still) Read(b []byte) (int, error)       { return copy(b, s.frames), nil }
func (s still) Write(b []byte) (int, error)      { return len(b), nil }
func (s still) SetWriteDeadline(time.Time) error { return nil }
func (s still) Close() error                     { return nil }

func TestMeterAllocatesNothing(t *testing.T) {
	v := NewServer(Config{Ready: func() bool { return true }})
	var in, out bytes.Buffer
	caller, node := http2.NewFramer(&in, nil), http2.NewFramer(&out, nil)
	for stream := uint32(1); stream < 33; stream += 2 {
		require.NoError(t, caller.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: make([]byte, 60), EndHeaders: true}))
		require.NoError(t, caller.WriteData(stream, true, make([]byte, 100)))
		require.NoError(t, node.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: make([]byte, 10), EndHeaders: true}))
		require.NoError(t, node.WriteData(stream, false, make([]byte, 100)))
		require.NoError(t, node.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: make([]byte, 10), EndHeaders: true, EndStream: true}))
	}
	m := newMeter(still{frames: in.Bytes()}, v)
	buf := make([]byte, in.Len())
	exchange := func() {
		m.last = 0 // the streams are new again
		_, _ = m.Read(buf)
		_, _ = m.Write(out.Bytes())
	}
	exchange()
	require.Zero(t, testing.AllocsPerRun(100, exchange))
	require.Zero(t, v.held.Load())
}

// A connection that always has more to read lets others have their turn.
func TestFloodsAreReadInTurn(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	m := newMeter(still{frames: bytes.Repeat([]byte{0}, 32<<10)}, NewServer(Config{Ready: func() bool { return true }, extra: unlimited}))
	var turns atomic.Int64
	ctx, stop := context.WithCancel(t.Context())
	var other sync.WaitGroup
	other.Go(func() {
		for ctx.Err() == nil {
			turns.Add(1)
			runtime.Gosched()
		}
	})
	const reads = 100
	buf := make([]byte, 32<<10)
	for range reads {
		n, err := m.Read(buf)
		require.NoError(t, err)
		require.Equal(t, readAtOnce, n)
	}
	require.GreaterOrEqual(t, turns.Load(), int64(reads/2))
	stop()
	other.Wait()
}
