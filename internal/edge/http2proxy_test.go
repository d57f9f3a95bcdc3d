package edge

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/weir-edge/weir/internal/edge/config"
	"github.com/weir-edge/weir/internal/testenv"
)

// fromProxy starts a node, and returns a connection that a trusted proxy uses for all its clients.
func fromProxy(t *testing.T) (*node, *testenv.Attacker) {
	n := startH2C(t, setup{config: func(c *config.Config) { c.TrustedProxies = []string{"127.0.0.0/8"} }})
	a := n.attacker()
	a.ReadMetaHeaders = hpack.NewDecoder(4<<10, nil)
	return n, a
}

// answered reads until a stream has its status, and returns it.
func answered(t *testing.T, a *testenv.Attacker, stream uint32) (status string) {
	t.Helper()
	closed := a.Frames(func(f http2.Frame) bool {
		m, ok := f.(*http2.MetaHeadersFrame)
		if !ok || m.StreamID != stream {
			return false
		}
		status = m.PseudoValue("status")
		return true
	})
	require.False(t, closed, "the connection has ended")
	return status
}

// A header that is too large ends the request of one client, not those of others on the connection of
// their proxy.
func TestHTTP2LargeHeaderOfAProxysClient(t *testing.T) {
	n, a := fromProxy(t)
	for _, size := range []int{20 << 10, 52 << 10, 100 << 10, 900 << 10} {
		for _, sensitive := range []bool{false, true} { // with and without a place in the table of fields
			other, err := a.Open(false, "content-length 1")
			require.NoError(t, err)
			large := a.Stream()
			block := append([]byte(nil), a.Header()...)
			for range size / 1000 {
				block = append(block, a.Encode(hpack.HeaderField{Name: "x-large", Value: strings.Repeat("~", 500), Sensitive: sensitive}, hpack.HeaderField{Name: "x-more", Value: strings.Repeat("^", 500)})...)
			}
			first := true
			for len(block) > 0 {
				part := block[:min(len(block), 16<<10)]
				block = block[len(part):]
				if first {
					err = a.WriteHeaders(http2.HeadersFrameParam{StreamID: large, BlockFragment: part, EndStream: true, EndHeaders: len(block) == 0})
				} else {
					err = a.WriteContinuation(large, len(block) == 0, part)
				}
				require.NoError(t, err)
				first = false
			}
			require.Equal(t, "431", answered(t, a, large))
			require.NoError(t, a.WriteData(other, true, []byte("x")))
			require.Equal(t, "200", answered(t, a, other))
			after, err := a.Open(true, "x-more "+strings.Repeat("^", 500))
			require.NoError(t, err)
			require.Equal(t, "200", answered(t, a, after), "both sides' tables of fields are the same")
		}
	}
	require.Zero(t, n.metric(`weir_http2_refused_total{reason="protocol"}`))
}

// Clients that give up their requests do not end those of others on the connection of their proxy.
func TestHTTP2ResetsOfAProxysClients(t *testing.T) {
	n, a := fromProxy(t)
	for range 100 {
		for range 50 {
			id, err := a.Open(true)
			require.NoError(t, err)
			require.NoError(t, a.WriteRSTStream(id, http2.ErrCodeCancel))
		}
		other, err := a.Open(true)
		require.NoError(t, err)
		require.Equal(t, "200", answered(t, a, other))
	}
	require.Zero(t, n.metric(`weir_http2_refused_total{reason="resets"}`))

	// Resets without requests are still a flood.
	_, _ = a.Flood(func() error { return a.WriteRSTStream(1, http2.ErrCodeCancel) })
	require.EqualValues(t, 1, n.metric(`weir_http2_refused_total{reason="resets"}`))
}
