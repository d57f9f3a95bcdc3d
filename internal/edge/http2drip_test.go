package edge

import (
	"bytes"
	"io"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"

	"github.com/weir-edge/weir/internal/testenv"
)

// exchanges sends something and waits for a frame of this kind, until the node closes the connection.
// It returns how often. No frame is sent before the last was answered, so nothing is merged.
func exchanges(a *testenv.Attacker, kind http2.FrameType, send func() error) (times int) {
	const enough = 200_000
	for send() == nil {
		if a.Frames(func(f http2.Frame) bool { return f.Header().Type == kind }) {
			return times
		}
		if times++; times == enough {
			require.Fail(a.T, "the node took part in 200,000 exchanges")
		}
	}
	return times
}

// flood returns how often send was accepted.
func flood(a *testenv.Attacker, send func() error) int {
	sent, _ := a.Flood(send)
	return sent
}

// Frames that each make the node send one have a budget, too: what the client's own games make
// the node send earns nothing.
func TestHTTP2Drips(t *testing.T) {
	large := bytes.Repeat([]byte("x"), 1<<20)
	n := startH2C(t, setup{
		rules: "rules: [{id: slots, key: [client_ip], algorithm: concurrency, limit: 100000, window: 1h}]",
		origin: func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/large" {
				_, _ = w.Write(large)
				return
			}
			_, _ = io.Copy(io.Discard, r.Body)
		},
	})
	// burst and rate are the budget, of attacks that wait for each answer.
	f := func(name, reason string, burst, rate float64, attack func(*testenv.Attacker) int) {
		t.Run(name, func(t *testing.T) {
			n := &node{Edge: n.Edge, t: t, public: n.public, admin: n.admin, client: n.client, logs: n.logs}
			series := `weir_http2_refused_total{reason="` + reason + `"}`
			refused, began, cpu := n.metric(series), time.Now(), processCPU(t)
			times := attack(n.attacker())
			took := time.Since(began)
			t.Logf("%d times in %s; both sides used %s of CPU", times, took.Round(time.Millisecond), (processCPU(t) - cpu).Round(time.Millisecond))
			eventually(t, "the connection is gone", func() bool { return n.metric("weir_http2_connections") == 0 })
			require.EqualValues(t, refused+1, n.metric(series), "counted once")
			// Frames on their way to a connection that ends count here, and not there.
			if rate > 0 {
				require.LessOrEqual(t, float64(times), 2*burst+took.Seconds()*rate+1000)
			}
			n.nothingHeld(100_000)
		})
	}
	drip := func(a *testenv.Attacker) uint32 {
		require.NoError(a.T, a.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0}))
		a.Path = "/large"
		id, err := a.Open(true)
		require.NoError(a.T, err)
		return id
	}
	f("a window that opens by a byte", "window_updates", 5000, 1000, func(a *testenv.Attacker) int {
		id := drip(a)
		return exchanges(a, http2.FrameData, func() error { return a.WriteWindowUpdate(id, 1) })
	})
	f("PING with each byte", "control_frames", 1000, 100, func(a *testenv.Attacker) int {
		id := drip(a)
		return exchanges(a, http2.FrameData, func() error {
			if err := a.WritePing(false, [8]byte{}); err != nil {
				return err
			}
			return a.WriteWindowUpdate(id, 1)
		})
	})
	f("windows that all open by a byte", "control_frames", 1000, 100, func(a *testenv.Attacker) int {
		drip(a)
		size := uint32(0)
		return exchanges(a, http2.FrameData, func() error {
			size++
			return a.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: size})
		})
	})
	f("DATA of padding", "empty_data", 0, 0, func(a *testenv.Attacker) int {
		id, err := a.Open(false)
		require.NoError(a.T, err)
		return flood(a, func() error { return a.WriteDataPadded(id, false, nil, make([]byte, 255)) })
	})
	f("DATA after the end", "resets", 0, 0, func(a *testenv.Attacker) int { // as in CVE-2025-8671
		a.Path = "/large"
		return flood(a, func() error {
			id, err := a.Open(true)
			if err != nil {
				return err
			}
			return a.WriteData(id, false, []byte("x"))
		})
	})
	f("DATA for a stream that is over", "closed_streams", 0, 0, func(a *testenv.Attacker) int {
		id, err := a.Open(true)
		require.NoError(a.T, err)
		require.False(a.T, a.Frames(func(f http2.Frame) bool {
			return f.Header().Flags.Has(http2.FlagDataEndStream) && f.Header().StreamID == id
		}))
		return flood(a, func() error { return a.WriteData(id, false, []byte("x")) })
	})
}

// Clients that account for each small part of an answer, on both windows, are not cut off: here
// more than the budget's burst, as fast as they can.
func TestHTTP2HonestWindows(t *testing.T) {
	const parts = 6000
	n := startH2C(t, setup{
		rules: "rules: []",
		origin: func(w http.ResponseWriter, r *http.Request) {
			size, _ := strconv.Atoi(r.URL.Query().Get("size"))
			for range parts {
				_, _ = w.Write(bytes.Repeat([]byte("x"), size))
				w.(http.Flusher).Flush()
			}
		},
	})
	f := func(name string, size int, window uint32) {
		t.Run(name, func(t *testing.T) {
			n := &node{Edge: n.Edge, t: t, public: n.public, admin: n.admin, client: n.client, logs: n.logs}
			a := n.attacker()
			require.NoError(t, a.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: window}))
			a.Path = "/?size=" + strconv.Itoa(size)
			id, err := a.Open(true)
			require.NoError(t, err)
			got, frames := 0, 0
			closed := a.Frames(func(f http2.Frame) bool {
				if d, ok := f.(*http2.DataFrame); ok && len(d.Data()) > 0 {
					got += len(d.Data())
					frames++
					require.NoError(t, a.WriteWindowUpdate(0, uint32(len(d.Data()))))
					require.NoError(t, a.WriteWindowUpdate(id, uint32(len(d.Data()))))
					if frames%16 == 0 {
						require.NoError(t, a.WritePing(false, [8]byte{}))
					}
				}
				return f.Header().Type == http2.FrameData && f.Header().Flags.Has(http2.FlagDataEndStream)
			})
			require.False(t, closed, "after %d frames", frames)
			require.Equal(t, parts*size, got)
			t.Logf("%d frames", frames)
		})
	}
	f("messages of 20 bytes", 20, 65535)
	f("a window of 1024 bytes", 4096, 1024)
	f("the default window", 4096, 65535)
}
