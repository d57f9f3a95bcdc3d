package edge

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"
)

// Answers that one client does not read leave room for all others, although their exchanges with the
// upstream last as long as the client likes.
func TestOneClientsUnreadAnswersLeaveRoom(t *testing.T) {
	const most, sent = 40, 100
	bothSides(t, func(t *testing.T, client2, upstream2 bool) {
		n := uploadTo(t, client2, upstream2, fmt.Sprintf("%sreason_header: true\nclasses: [{name: all, max_in_flight: %d}]\ndefault_class: all", calm, most), func(w http.ResponseWriter, r *http.Request) {
			for piece := make([]byte, 64<<10); r.URL.Path == "/endless"; {
				if _, err := w.Write(piece); err != nil {
					return
				}
			}
		})
		ends := n.unreadAnswers(client2, sent, "203.0.113.1")
		eventually(t, "the node has decided all", func() bool { return n.inflight()+n.capped() == sent })
		require.EqualValues(t, most/4, n.inflight())
		for i := range 20 {
			require.Equal(t, 200, n.get("/", fmt.Sprintf("X-Forwarded-For: 203.0.113.%d", 10+i)).status)
		}
		a := n.get("/", "X-Forwarded-For: 203.0.113.1")
		require.Equal(t, 503, a.status)
		require.Regexp(t, `^inflight;value=10;threshold=10;.*;kind=client$`, a.header.Get("Weir-Shed-Reason"))
		ends()
		n.idle()
		require.Equal(t, 200, n.get("/", "X-Forwarded-For: 203.0.113.1").status)
	})
}

// capped returns how many requests caps have refused.
func (n *node) capped() (sum int64) {
	for _, reason := range []string{"cap", "client"} {
		sum += int64(n.metric(`weir_shed_total{class="all",reason="` + reason + `",upstream="default"}`))
	}
	return sum
}

// unreadAnswers sends requests of a client whose answers nobody reads until ends is called.
func (n *node) unreadAnswers(client2 bool, count int, client string) (ends func()) {
	n.t.Helper()
	if client2 {
		a := n.attacker()
		a.Path = "/endless"
		require.NoError(n.t, a.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0}))
		for range count {
			_, err := a.Open(true, "x-forwarded-for "+client)
			require.NoError(n.t, err)
		}
		return func() { _ = a.Conn.Close() }
	}
	var all []func()
	for range count {
		c := n.from("127.0.0.1")
		require.NoError(n.t, c.SetReadBuffer(4<<10))
		_, err := c.Write([]byte(lines("GET /endless HTTP/1.1", "Host: x", "X-Forwarded-For: "+client)))
		require.NoError(n.t, err)
		all = append(all, func() { _ = c.Close() })
	}
	return func() {
		for _, end := range all {
			end()
		}
	}
}
