package edge

import (
	"io"
	"net"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/edge/config"
	"github.com/weir-edge/weir/internal/testenv"
	"github.com/weir-edge/weir/pkg/limiter"
)

const slotRules = "rules: [{id: slots, key: [client_ip], algorithm: concurrency, limit: 2, window: 1h}]"

func (n *node) slotsComeBack() {
	n.t.Helper()
	eventually(n.t, "both slots are free", func() bool { return n.remaining("slots", "127.0.0.1") == 2 })
}

func (n *node) slotsLeft(want int64) {
	n.t.Helper()
	eventually(n.t, strconv.FormatInt(want, 10)+" slots are free", func() bool { return n.remaining("slots", "127.0.0.1") == want })
}

func TestSlotsComeBack(t *testing.T) {
	f := func(name string, test func(t *testing.T, redis *testenv.Server)) {
		t.Run(name+", memory", func(t *testing.T) { test(t, nil) })
		t.Run(name+", redis", func(t *testing.T) { test(t, testenv.Redis(t, testenv.Options{})) })
	}
	f("answered", func(t *testing.T, redis *testenv.Server) {
		n := start(t, setup{rules: slotRules, redis: redis})
		for range 5 {
			require.Equal(t, 200, n.get("/").status)
			n.slotsComeBack()
		}
	})
	f("upstream refuses", func(t *testing.T, redis *testenv.Server) {
		port := testenv.FreePorts(t, 1)[0]
		n := start(t, setup{rules: slotRules, redis: redis, config: func(c *config.Config) {
			c.Upstreams = []config.Upstream{{URL: "http://127.0.0.1:" + strconv.Itoa(port)}}
		}})
		for range 5 {
			require.Equal(t, 502, n.get("/").status)
			n.slotsComeBack()
		}
		require.EqualValues(t, 5, n.metric(`weir_upstream_errors_total{kind="connect",upstream="default"}`))
	})
	f("upstream resets in the body", func(t *testing.T, redis *testenv.Server) {
		n := start(t, setup{rules: slotRules, redis: redis, origin: func(w http.ResponseWriter, _ *http.Request) {
			conn, _, err := w.(http.Hijacker).Hijack()
			if err != nil {
				return
			}
			_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\nbegin")
			_ = conn.(*net.TCPConn).SetLinger(0)
			conn.Close()
		}})
		for range 5 {
			if resp, err := n.client.Get("http://" + n.public + "/"); err == nil {
				_, err = io.ReadAll(resp.Body)
				require.Error(t, err, "a body cut short must not look whole")
				resp.Body.Close()
			}
			n.slotsComeBack()
		}
	})
	f("client hangs up in the download", func(t *testing.T, redis *testenv.Server) {
		n := start(t, setup{rules: slotRules, redis: redis, origin: endless})
		resp, err := n.client.Get("http://" + n.public + "/")
		require.NoError(t, err)
		_, err = io.ReadFull(resp.Body, make([]byte, 100_000))
		require.NoError(t, err)
		n.slotsLeft(1) // held as long as the body streams
		resp.Body.Close()
		n.slotsComeBack()
		eventually(t, "the hang-up is counted", func() bool { return n.metric(`weir_upstream_errors_total{kind="client",upstream="default"}`) == 1 })
	})
	f("the handler panics", func(t *testing.T, redis *testenv.Server) {
		n := start(t, setup{rules: slotRules, redis: redis, origin: func(_ http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/abort" {
				panic(http.ErrAbortHandler)
			}
		}})
		require.Equal(t, 200, n.get("/").status)
		n.logs.panics.Store(true)
		a := n.get("/abort")
		n.logs.panics.Store(false)
		require.Equal(t, 500, a.status)
		require.JSONEq(t, `{"type":"about:blank","title":"internal error","status":500}`, a.body)
		require.EqualValues(t, 1, n.metric("weir_panics_total"))
		require.Len(t, n.logs.lines(t, "handler panicked"), 1)
		n.slotsComeBack()
		require.Equal(t, 200, n.get("/").status)
	})
}

// endless streams until the client leaves.
func endless(w http.ResponseWriter, r *http.Request) {
	block := make([]byte, 64<<10)
	for r.Context().Err() == nil {
		if _, err := w.Write(block); err != nil {
			return
		}
	}
}

// A node that dies returns nothing: its slots become free when they expire.
func TestSlotsOfADeadNodeExpire(t *testing.T) {
	redis := testenv.Redis(t, testenv.Options{})
	n := start(t, setup{redis: redis, rules: "rules: [{id: slots, key: [client_ip], algorithm: concurrency, limit: 2, window: 500ms}]"})
	// The other node's last request.
	asked := n.found("127.0.0.1", nil)
	var d limiter.Decision
	for slot := range uint64(2) {
		asked.Match.Checks[0].Slot = slot + 1
		require.NoError(t, n.decider.Take.TakeAfter(t.Context(), asked.Match.Checks, &d, limiter.PrecheckResult{}))
		require.True(t, d.Allowed)
	}
	began := time.Now()
	n.slotsComeBack()
	promised(t, time.Since(began), 5*time.Second)
}

// Redis dies while a request holds a slot, and returns empty.
func TestSlotsWhenRedisDies(t *testing.T) {
	redis := testenv.Redis(t, testenv.Options{})
	hold := make(chan struct{})
	n := start(t, setup{rules: slotRules, redis: redis, origin: func(http.ResponseWriter, *http.Request) { <-hold }})
	done := n.background("/")
	n.slotsLeft(1)
	redis.Kill()
	close(hold)
	require.Equal(t, 200, (<-done).status, "the answer does not wait for the store")
	redis.Start()
	eventually(t, "the store is back and empty", func() bool {
		r := n.explained("slots", "127.0.0.1", "")
		return r.Source == "redis" && r.Remaining == 2
	})
}

// background requests in a goroutine. An error is status 0.
func (n *node) background(path string) <-chan answer {
	done := make(chan answer, 1)
	go func() {
		resp, err := n.client.Get("http://" + n.public + path)
		if err != nil {
			done <- answer{body: err.Error()}
			return
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			done <- answer{body: err.Error()}
			return
		}
		done <- answer{resp.StatusCode, resp.Header, string(body)}
	}()
	return done
}
