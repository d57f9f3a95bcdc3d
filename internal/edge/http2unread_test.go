package edge

import (
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"

	"github.com/weir-edge/weir/internal/edge/config"
)

// A client that does not read its answers costs only itself, also with all streams that an upstream may
// have, on one connection.
func TestHTTP2UnreadAnswersDelayNobody(t *testing.T) {
	const streams, size, most = 60, 1 << 20, 128 << 10
	var sent atomic.Int64
	origin := originOfBoth(t, func(w http.ResponseWriter, r *http.Request) {
		piece := make([]byte, 16<<10)
		for range size / len(piece) {
			n, err := w.Write(piece)
			if err != nil {
				return
			}
			if r.URL.Path == "/unread" {
				sent.Add(int64(n))
			}
		}
	})
	n := startH2C(t, setup{config: func(c *config.Config) {
		c.Upstreams = []config.Upstream{{URL: "h2c://" + origin}}
		c.Upstream.MaxConns, c.Upstream.StreamTimeout, c.Listen.HTTP2.MaxStreams = streams, 10*patience, streams
	}})
	a := n.attacker()
	a.Path = "/unread"
	require.NoError(t, a.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0}))
	for range streams - 1 {
		_, err := a.Open(true)
		require.NoError(t, err)
	}
	go func() { // it takes nothing but answers pings
		for {
			f, err := a.ReadFrame()
			if err != nil {
				return
			}
			if ping, ok := f.(*http2.PingFrame); ok && !ping.IsAck() {
				_ = a.WritePing(true, ping.Data)
			}
		}
	}()
	eventually(t, "the answers fill their windows", func() bool { return sent.Load() >= (streams-1)*most })
	for range 3 {
		got := n.get("/read")
		require.Equal(t, 200, got.status)
		require.Len(t, got.body, size)
	}
	require.Less(t, sent.Load(), int64(streams*(most+100<<10)), "and the node keeps no more")
	require.NoError(t, a.Conn.Close())
	eventually(t, "nothing is left open", func() bool { return n.listeners.HTTP2.Streams() == 0 })
}
