package edge

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/gorilla/websocket"
	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/edge/config"
)

// echo is an origin that sends each WebSocket message back.
func echo(w http.ResponseWriter, r *http.Request) {
	up := websocket.Upgrader{}
	ws, err := up.Upgrade(w, r, nil)
	if err != nil {
		return
	}
	defer ws.Close()
	for {
		kind, b, err := ws.ReadMessage()
		if err != nil || ws.WriteMessage(kind, b) != nil {
			return
		}
	}
}

// originProcess, if set, makes the test binary an origin that a test can kill.
const originProcess = "WEIR_TEST_ORIGIN"

func webSocketProcess() {
	s := httptest.NewServer(http.HandlerFunc(echo))
	fmt.Println(s.URL)
	_, _ = os.Stdin.Read(make([]byte, 1)) // until the test is gone
}

// dial opens a WebSocket through the node and exchanges a message.
func (n *node) dial() *websocket.Conn {
	n.t.Helper()
	d := websocket.Dialer{HandshakeTimeout: patience}
	ws, resp, err := d.Dial("ws://"+n.public+"/ws", nil)
	require.NoError(n.t, err)
	n.t.Cleanup(func() { ws.Close() })
	require.Contains(n.t, resp.Header.Get("RateLimit-Policy"), `"slots";q=2`)
	require.NoError(n.t, ws.WriteMessage(websocket.TextMessage, []byte("hello")))
	_, b, err := ws.ReadMessage()
	require.NoError(n.t, err)
	require.Equal(n.t, "hello", string(b))
	return ws
}

// gone waits until the node has nothing left of a tunnel.
func (n *node) gone() {
	n.t.Helper()
	n.slotsComeBack()
	eventually(n.t, "no tunnel is open", func() bool { return n.metric("weir_upgrades_active") == 0 })
	require.Zero(n.t, n.metric(`weir_inflight{class="read",upstream="default"}`))
}

func TestWebSocketHoldsItsSlot(t *testing.T) {
	n := start(t, setup{rules: slotRules, origin: echo})
	ws := n.dial()
	n.slotsLeft(1)
	require.EqualValues(t, 1, n.metric("weir_upgrades_active"))
	require.EqualValues(t, 1, n.metric(`weir_inflight{class="read",upstream="default"}`))
	n.dial()
	_, resp, err := websocket.DefaultDialer.Dial("ws://"+n.public+"/ws", nil)
	require.ErrorIs(t, err, websocket.ErrBadHandshake)
	require.Equal(t, 429, resp.StatusCode)
	require.EqualValues(t, 2, n.asked.Load())

	require.NoError(t, ws.NetConn().(*net.TCPConn).SetLinger(0))
	ws.Close() // the client vanishes
	n.slotsLeft(1)
	eventually(t, "it is counted once", func() bool { return n.metric(`weir_requests_total{code_class="1xx"}`) == 1 })
	require.Zero(t, n.metric("weir_request_seconds")-1, "only of the refusal")
}

// The origin of a WebSocket dies without a close frame.
func TestWebSocketOriginKilled(t *testing.T) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), originProcess+"=1")
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	defer in.Close()
	url, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	n := start(t, setup{rules: slotRules, config: func(c *config.Config) { c.Upstreams = []config.Upstream{{URL: strings.TrimSpace(url)}} }})
	ws := n.dial()
	n.slotsLeft(1)
	require.NoError(t, cmd.Process.Kill())
	require.Error(t, cmd.Wait())
	_, _, err = ws.ReadMessage()
	require.Error(t, err)
	ws.Close()
	n.gone()
}

func TestWebSocketsDrain(t *testing.T) {
	n := start(t, setup{rules: slotRules, origin: echo})
	ws, other := n.dial(), n.dial()
	n.stop()
	for _, c := range []*websocket.Conn{ws, other} {
		_, _, err := c.ReadMessage()
		require.Error(t, err)
	}
	require.Len(t, n.logs.lines(t, "drained"), 1)
	require.Zero(t, n.metric("weir_upgrades_active"))
	require.EqualValues(t, 2, n.metric(`weir_requests_total{code_class="1xx"}`))
}

// A tunnel that outlived its slot would run in addition to as many as the rule allows.
func TestWebSocketEndsWithItsSlot(t *testing.T) {
	n := start(t, setup{rules: "rules: [{id: slots, key: [client_ip], algorithm: concurrency, limit: 2, window: 300ms}]", origin: echo})
	ws, _, err := websocket.DefaultDialer.Dial("ws://"+n.public+"/ws", nil) // and no more: its time may be over
	require.NoError(t, err)
	defer ws.Close()
	_, _, err = ws.ReadMessage()
	require.Error(t, err)
	n.gone()
}

// The window began when the slot was taken, not when the origin switched at last.
func TestWebSocketLateForItsSlot(t *testing.T) {
	asked, release := make(chan struct{}), make(chan struct{})
	n := start(t, setup{rules: "rules: [{id: slots, key: [client_ip], algorithm: concurrency, limit: 2, window: 300ms}]", origin: func(w http.ResponseWriter, r *http.Request) {
		close(asked)
		<-release
		echo(w, r)
	}})
	dialed := make(chan *websocket.Conn, 1)
	go func() {
		ws, _, _ := websocket.DefaultDialer.Dial("ws://"+n.public+"/ws", nil)
		dialed <- ws
	}()
	<-asked
	n.slotsComeBack()
	close(release)
	ws := <-dialed
	require.NotNil(t, ws)
	defer ws.Close()
	_ = ws.WriteMessage(websocket.TextMessage, []byte("hello"))
	_, _, err := ws.ReadMessage()
	require.Error(t, err, "another may run in its place")
	n.gone()
}

func TestUpgradeTurnedOff(t *testing.T) {
	n := start(t, setup{rules: slotRules, origin: echo, config: func(c *config.Config) { c.Upstream.Upgrade = nil }})
	_, resp, err := websocket.DefaultDialer.Dial("ws://"+n.public+"/ws", nil)
	require.ErrorIs(t, err, websocket.ErrBadHandshake)
	require.Equal(t, 400, resp.StatusCode, "the origin's: it sees no Upgrade")
	n.gone()
}
