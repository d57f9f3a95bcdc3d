package edge

import (
	"net"
	"net/http"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/edge/config"
	"github.com/weir-edge/weir/internal/testenv"
)

// A node whose upstream points back to it.
func TestLoop(t *testing.T) {
	for _, header := range []string{"via", "cdn-loop"} {
		t.Run(header, func(t *testing.T) {
			public := testenv.FreePorts(t, 1)[0]
			n := start(t, setup{clock: newClock(), rules: "rules: [{id: all, key: [client_ip], algorithm: fixed_window, limit: 10, window: 1h}]", config: func(c *config.Config) {
				c.Listen.Public = net.JoinHostPort("127.0.0.1", strconv.Itoa(public))
				c.Upstreams = []config.Upstream{{URL: "http://" + c.Listen.Public}}
				c.Upstream.Loop = header
			}})
			a := n.get("/")
			require.Equal(t, 508, a.status, a.body)
			require.JSONEq(t, `{"type":"about:blank","title":"Loop detected","status":508,"detail":"the request has passed this node before: its upstream leads back here"}`, a.body)
			require.EqualValues(t, 9, n.remaining("all", "127.0.0.1"), "it is counted once")
			require.EqualValues(t, 2, n.metric(`weir_requests_total{code_class="5xx"}`))
		})
	}
}

// Two nodes in a row are not a loop, and others' names stay.
func TestViaOfOthers(t *testing.T) {
	f := func(loop string, check func(http.Header)) {
		inner := start(t, setup{origin: func(_ http.ResponseWriter, r *http.Request) { check(r.Header) }, config: func(c *config.Config) { c.Upstream.Loop = loop }})
		outer := start(t, setup{config: func(c *config.Config) {
			c.Upstreams, c.Upstream.Loop = []config.Upstream{{URL: "http://" + inner.public}}, loop
		}})
		require.Equal(t, 200, outer.get("/", "Via: 1.0 fred", "Via: 1.1 weir-other").status)
		require.EqualValues(t, 1, inner.asked.Load())
	}
	f("via", func(h http.Header) {
		require.Len(t, h["Via"], 4)
		require.Equal(t, []string{"1.0 fred", "1.1 weir-other"}, h["Via"][:2])
		require.Regexp(t, `^1\.1 weir-[A-Z0-9]{8}$`, h["Via"][2])
		require.NotEqual(t, h["Via"][2], h["Via"][3])
	})
	f("off", func(h http.Header) { require.Len(t, h["Via"], 2); require.Empty(t, h["Cdn-Loop"]) })
	f("cdn-loop", func(h http.Header) { require.Len(t, h["Via"], 2); require.Len(t, h["Cdn-Loop"], 2) })
}
