package edge

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/edge/config"
	"github.com/weir-edge/weir/internal/edge/gateway"
	"github.com/weir-edge/weir/internal/testenv"
)

// A connection that sends many requests at once lets others have their turn after each.
func TestPipelinedRequestsTakeTurns(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	var turns, last, shared atomic.Int64
	ports := testenv.FreePorts(t, 2)
	decide, spoe := fmt.Sprint("127.0.0.1:", ports[0]), fmt.Sprint("127.0.0.1:", ports[1])
	n := start(t, setup{
		rules: "rules: [{id: per-client, key: [client_ip], limit: 1, window: 1h}]",
		config: func(c *config.Config) {
			c.Store.Clock = func() int64 { // each decision reads it; count those before which another goroutine had its turn
				if now := turns.Load(); last.Swap(now) != now {
					shared.Add(1)
				}
				return time.Now().UnixMicro()
			}
			c.Listen.Decide = &config.Decide{Address: decide, From: []string{"127.0.0.1"}}
			c.Listen.SPOE = &config.Decide{Address: spoe, From: []string{"127.0.0.1"}}
		},
	})
	ctx, stop := context.WithCancel(t.Context())
	var other sync.WaitGroup
	other.Go(func() {
		for ctx.Err() == nil {
			turns.Add(1)
			runtime.Gosched()
		}
	})
	defer func() { stop(); other.Wait() }()

	const requests = 200
	f := func(name string, conn net.Conn, request string) {
		t.Run(name, func(t *testing.T) {
			require.NoError(t, conn.SetDeadline(time.Now().Add(patience)))
			shared.Store(0)
			_, err := io.WriteString(conn, strings.Repeat(request, requests))
			require.NoError(t, err)
			require.NoError(t, conn.(*net.TCPConn).CloseWrite())
			_, err = io.Copy(io.Discard, conn)
			require.NoError(t, err)
			require.Greater(t, shared.Load(), int64(requests/2))
		})
	}
	dial := func(address string) net.Conn {
		conn, err := net.Dial("tcp", address)
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		return conn
	}
	f("public", dial(n.public), "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	f("decide", dial(decide), "GET "+gateway.Path+" HTTP/1.1\r\nHost: a\r\n"+strings.Join(caddy("203.0.113.1", "GET", "/"), "\r\n")+"\r\n\r\n")
	frame := spoeNotify(1, spoeRequest("203.0.113.2", "GET", "/", spoeHeaders("host: a")))
	f("spoe", n.agreed(16380).conn, string(binary.BigEndian.AppendUint32(nil, uint32(len(frame))))+frame)
}
