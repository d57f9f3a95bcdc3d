package envoy

import (
	"bytes"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"

	"github.com/weir-edge/weir/internal/edge/frames"
	"github.com/weir-edge/weir/internal/testenv"
)

// unlimited is for tests of what bounds a caller that stays within the budget of frames.
var unlimited = frames.Budget{Burst: math.MaxInt}

// Every flood of frames that no call needs ends with its connection, and is counted once.
func TestFloodsEndTheConnection(t *testing.T) {
	f := func(name string, send func(*testenv.Attacker) error) {
		t.Run(name, func(t *testing.T) {
			v := attacked(t, nil)
			a := v.attack()
			stream, err := a.Open(false)
			require.NoError(t, err)
			require.EqualValues(t, 1, stream)
			a.Flood(func() error { return send(a) })
			require.Eventually(t, func() bool { return v.connections() == 0 }, patience, time.Millisecond)
			require.EqualValues(t, 1, v.refused[Flood].Load())
			v.answers()
		})
	}
	f("PING", func(a *testenv.Attacker) error { return a.WritePing(false, [8]byte{}) })
	f("answers to PINGs", func(a *testenv.Attacker) error { return a.WritePing(true, [8]byte{}) })
	f("SETTINGS", func(a *testenv.Attacker) error { return a.WriteSettings() })
	f("WINDOW_UPDATE", func(a *testenv.Attacker) error { return a.WriteWindowUpdate(0, 1) })
	f("WINDOW_UPDATE of a stream", func(a *testenv.Attacker) error { return a.WriteWindowUpdate(1, 1) })
	f("PRIORITY", func(a *testenv.Attacker) error { return a.WritePriority(1, http2.PriorityParam{StreamDep: 3}) })
	f("unknown frames", func(a *testenv.Attacker) error { return a.WriteRawFrame(0x77, 0, 0, nil) })
	f("RST_STREAM again and again", func(a *testenv.Attacker) error { return a.WriteRSTStream(1, http2.ErrCodeCancel) })
	f("empty DATA", func(a *testenv.Attacker) error { return a.WriteData(1, false, nil) })
	f("padded DATA", func(a *testenv.Attacker) error { return a.WriteDataPadded(1, false, nil, make([]byte, 9)) })
	f("DATA of no stream", func(a *testenv.Attacker) error { return a.WriteData(3, false, make([]byte, wholeData)) })
	f("messages a byte at a time", func(a *testenv.Attacker) error {
		if err := a.WriteData(a.Next-2, false, make([]byte, 1)); err != nil || a.Next > 2*maxStreams {
			return err
		}
		_, err := a.Open(false)
		for i := 0; i < 100 && err == nil; i++ {
			err = a.WriteData(a.Next-2, false, make([]byte, 1))
		}
		return err
	})
	f("headers in empty CONTINUATION", func(a *testenv.Attacker) error {
		err := a.WriteHeaders(http2.HeadersFrameParam{StreamID: a.Stream(), BlockFragment: a.Header(), EndStream: true})
		for range 50 {
			if err == nil {
				err = a.WriteContinuation(a.Next-2, false, nil)
			}
		}
		if err == nil {
			err = a.WriteContinuation(a.Next-2, true, nil)
		}
		return err
	})
	f("frames between calls", func(a *testenv.Attacker) error {
		_, err := a.Open(true)
		for range 50 {
			if err == nil {
				err = a.WriteSettingsAck()
			}
		}
		return err
	})
}

// recorded is a connection that keeps what is written.
type recorded struct {
	still
	written *bytes.Buffer
}

func (r recorded) Write(b []byte) (int, error) { return r.written.Write(b) }

// A caller that reads learns why its connection is closed.
func TestFloodIsAnsweredWithGoAway(t *testing.T) {
	var said bytes.Buffer
	var flood bytes.Buffer
	for range int(extraFrames.Burst) + 1 {
		require.NoError(t, http2.NewFramer(&flood, nil).WriteSettingsAck())
	}
	refused := 0
	v := NewServer(Config{Ready: func() bool { return true }, Refused: func(Refusal) { refused++ }})
	m := newMeter(recorded{still{frames: flood.Bytes()}, &said}, v)
	var err error
	for range flood.Len()/readAtOnce + 1 {
		if _, err = m.Read(make([]byte, readAtOnce)); err != nil {
			break
		}
	}
	require.ErrorIs(t, err, errFlood)
	require.Equal(t, 1, refused)
	frame, err := http2.NewFramer(nil, &said).ReadFrame()
	require.NoError(t, err)
	require.Equal(t, http2.ErrCodeEnhanceYourCalm, frame.(*http2.GoAwayFrame).ErrCode)
}

// Callers that call, acknowledge, measure and cancel at any rate are not taken for a flood.
func TestCallsAreNoFlood(t *testing.T) {
	f := func(name string, call func(*testenv.Attacker) error) {
		t.Run(name, func(t *testing.T) {
			v := attacked(t, nil)
			a := v.attack()
			const calls = 20_000
			sent := make(chan error, 1)
			go func() {
				var err error
				for i := 0; i < calls && err == nil; i++ {
					err = call(a)
				}
				if err == nil {
					err = a.WritePing(false, [8]byte{1})
				}
				sent <- err
			}()
			require.False(t, a.Frames(func(f http2.Frame) bool { p, ok := f.(*http2.PingFrame); return ok && p.Data == [8]byte{1} }))
			require.NoError(t, <-sent)
			require.Zero(t, v.refused[Flood].Load())
			v.answers()
		})
	}
	f("answered", func(a *testenv.Attacker) error {
		stream, err := a.Open(false)
		for _, send := range []func() error{
			func() error { return a.WriteData(stream, false, make([]byte, 3)) },
			func() error { return a.WriteData(stream, false, make([]byte, 2)) },
			func() error { return a.WriteData(stream, true, nil) },
			func() error { return a.WriteWindowUpdate(0, 100) },
			func() error { return a.WriteWindowUpdate(stream, 100) },
			func() error { return a.WriteSettingsAck() },
		} {
			if err == nil {
				err = send()
			}
		}
		return err
	})
	f("canceled", func(a *testenv.Attacker) error {
		stream, err := a.Open(false)
		if err == nil {
			err = a.WriteData(stream, true, make([]byte, 5))
		}
		if err == nil {
			err = a.WriteRSTStream(stream, http2.ErrCodeCancel)
		}
		return err
	})
}
