package edge

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/edge/config"
	"github.com/weir-edge/weir/internal/testenv"
)

func (n *node) listens() bool {
	conn, err := net.Dial("tcp", n.public)
	if err != nil {
		return false
	}
	conn.Close()
	return true
}

// lingering makes a node that stops keep its listeners open until close is called. delayed gets how
// long it would do so otherwise.
func (s *setup) lingering() (delayed <-chan time.Duration, closes func()) {
	during, looked := make(chan time.Duration, 1), make(chan struct{})
	s.change = func(e *Edge) { e.linger = func(d time.Duration) { during <- d; <-looked } }
	return during, sync.OnceFunc(func() { close(looked) })
}

func TestGracefulStop(t *testing.T) {
	hold := make(chan struct{})
	streamed := 300_000 // more than any buffer of the proxy
	const delay = 2 * time.Second
	s := setup{rules: slotRules, redis: testenv.Redis(t, testenv.Options{}),
		config: func(c *config.Config) { c.Shutdown = config.Shutdown{Delay: delay, Timeout: patience} },
		origin: func(w http.ResponseWriter, r *http.Request) {
			switch r.URL.Path {
			case "/slow":
				<-hold
				_, _ = io.WriteString(w, "slow, but whole")
			case "/stream":
				_, _ = w.Write(make([]byte, streamed/2))
				w.(http.Flusher).Flush()
				<-hold
				_, _ = w.Write(make([]byte, streamed/2))
			}
		}}
	delayed, closes := s.lingering()
	defer closes()
	n := start(t, s)
	slow := n.background("/slow")
	stream, err := n.client.Get("http://" + n.public + "/stream")
	require.NoError(t, err)
	defer stream.Body.Close()
	n.slotsLeft(0)
	idle, err := net.Dial("tcp", n.public) // a connection without a request delays nothing
	require.NoError(t, err)
	defer idle.Close()
	_, err = io.WriteString(idle, "HEAD /idle HTTP/1.1\r\nHost: x\r\n\r\n")
	require.NoError(t, err)
	_, err = bufio.NewReader(idle).ReadString('\n')
	require.NoError(t, err)

	began := time.Now()
	n.cancel()
	eventually(t, "readyz fails", func() bool {
		a := n.operate("GET", "/readyz")
		if a.status == 503 {
			require.Contains(t, a.body, `"status": "draining"`)
		}
		return a.status == 503
	})
	require.Equal(t, delay, <-delayed)
	require.True(t, n.listens(), "readyz fails before the listener closes")
	closes()
	eventually(t, "the listener closes", func() bool { return !n.listens() })
	require.Equal(t, 200, n.operate("GET", "/healthz").status, "the admin side outlives the public one")

	close(hold)
	a := <-slow
	require.Equal(t, 200, a.status, a.body)
	require.Equal(t, "slow, but whole", a.body)
	body, err := io.ReadAll(stream.Body)
	require.NoError(t, err)
	require.Len(t, body, streamed)
	require.NoError(t, <-n.ended)
	close(n.ended)
	promised(t, time.Since(began), 5*time.Second)
	require.Len(t, n.logs.lines(t, "drained"), 1)
	require.Empty(t, n.logs.lines(t, "concurrency slot not returned; it expires automatically"))
}

func TestSlotsAreReturnedWhileStopping(t *testing.T) {
	redis := testenv.Redis(t, testenv.Options{})
	hold := make(chan struct{})
	n := start(t, setup{rules: slotRules, redis: redis, origin: func(http.ResponseWriter, *http.Request) { <-hold },
		config: func(c *config.Config) { c.Shutdown.Timeout = patience }})
	slow := n.background("/")
	n.slotsLeft(1)
	n.cancel()
	eventually(t, "it drains", func() bool { return len(n.logs.lines(t, "draining")) == 1 })
	close(hold)
	require.Equal(t, 200, (<-slow).status)
	require.NoError(t, <-n.ended)
	close(n.ended)
	other := start(t, setup{rules: slotRules, redis: redis})
	require.EqualValues(t, 2, other.remaining("slots", "127.0.0.1"), "before Run returns")
}

func TestStopCutsOffWhatTakesTooLong(t *testing.T) {
	hold := make(chan struct{})
	n := start(t, setup{config: func(c *config.Config) { c.Shutdown.Timeout = 200 * time.Millisecond },
		origin: func(http.ResponseWriter, *http.Request) { <-hold }})
	stuck := n.background("/")
	eventually(t, "the request is in flight", func() bool { return n.asked.Load() == 1 })
	promised(t, n.stop(), 5*time.Second)
	require.Len(t, n.logs.lines(t, "requests cut off"), 1)
	close(hold)
	<-stuck
}

func TestRunWithoutItsAddress(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	for _, side := range []string{"public", "admin"} {
		c := config.Dev("127.0.0.1:1")
		c.Listen = config.Listen{Public: "127.0.0.1:0", Admin: "127.0.0.1:0"}
		if side == "public" {
			c.Listen.Public = taken.Addr().String()
		} else {
			c.Listen.Admin = taken.Addr().String()
		}
		e, err := New(c, config.SampleRules, discard())
		require.NoError(t, err)
		err = e.Run(t.Context(), nil, nil)
		require.ErrorContains(t, err, "listen."+side+": ")
		require.ErrorContains(t, err, "address already in use; stop the program that uses it ")
	}
}

// A node that cannot open one of its ports leaves none open.
func TestRunLeavesNoPortOpen(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	ports := testenv.FreePorts(t, 4)
	at := func(i int) string { return fmt.Sprintf("127.0.0.1:%d", ports[i]) }
	c := config.Dev("127.0.0.1:1")
	c.Listen = config.Listen{
		Public: at(0), Admin: at(1), Decide: &config.Decide{Address: at(2)}, RLS: &config.RLS{Address: at(3)},
		SPOE: &config.Decide{Address: taken.Addr().String()},
	}
	e, err := New(c, config.SampleRules, discard())
	require.NoError(t, err)
	err = e.Run(t.Context(), nil, nil)
	require.ErrorContains(t, err, "listen.spoe: ")
	require.ErrorContains(t, err, "; stop the program that uses it ")
	for i := range ports {
		ln, err := net.Listen("tcp", at(i))
		require.NoError(t, err)
		require.NoError(t, ln.Close())
	}
}
