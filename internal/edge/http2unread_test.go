package edge

import (
	"io"
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

// Uploads that an origin does not read delay no other on the connection of their client, also with
// all streams that it may have.
func TestHTTP2UnreadUploadsDelayNobody(t *testing.T) {
	const streams, size, most = 20, 1 << 20, 256 << 10
	hold := make(chan struct{})
	origin := originWithWindow(t, 4<<10, func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/upload" {
			<-hold
		}
		_, _ = io.Copy(io.Discard, r.Body)
	})
	n := startH2C(t, setup{config: func(c *config.Config) {
		c.Upstreams = []config.Upstream{{URL: "h2c://" + origin}}
		c.Upstream.StreamTimeout, c.Listen.HTTP2.MaxStreams = 10*patience, streams
	}})
	require.Equal(t, 200, n.get("/").status, "the origin has said how large its windows are")
	var sent atomic.Int64
	var answers []<-chan int
	for range streams - 1 {
		answers = append(answers, n.upload("203.0.113.1", counted{io.LimitReader(zeros{}, size), &sent}))
	}
	reads := func() {
		t.Helper()
		for range 3 {
			resp, err := n.client.Post("http://"+n.public+"/read", "", io.LimitReader(zeros{}, size))
			require.NoError(t, err)
			require.Equal(t, 200, read(t, resp).status)
		}
	}
	eventually(t, "two uploads fill their windows", func() bool { return sent.Load() >= 2*most })
	reads()
	eventually(t, "all do", func() bool { return sent.Load() >= (streams-1)*most })
	reads()
	require.Less(t, sent.Load(), int64(streams*2*most), "and the node keeps no more, besides what is on its way")
	close(hold)
	for _, answer := range answers {
		require.Equal(t, 200, <-answer)
	}
}

// counted counts what is read.
type counted struct {
	io.Reader
	read *atomic.Int64
}

func (c counted) Read(b []byte) (int, error) {
	n, err := c.Reader.Read(b)
	c.read.Add(int64(n))
	return n, err
}
