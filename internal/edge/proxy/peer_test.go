package proxy

import (
	"net"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"
)

// askedPeer is a connection that counts how often its peer is asked for.
type askedPeer struct {
	net.Conn
	asked int
}

func (c *askedPeer) RemoteAddr() net.Addr {
	c.asked++
	return &net.TCPAddr{IP: net.ParseIP("192.0.2.7"), Port: 1}
}

func TestPeerOf(t *testing.T) {
	f := func(c net.Conn, asked *int, want int) {
		t.Helper()
		ctx := &fasthttp.RequestCtx{}
		ctx.Init2(c, nil, false)
		for range 3 {
			require.Equal(t, netip.MustParseAddr("192.0.2.7"), PeerOf(ctx))
		}
		require.Equal(t, want, *asked)
	}
	plain, listened := &askedPeer{}, &askedPeer{}
	f(plain, &plain.asked, 3)
	f(&clientConn{Conn: listened}, &listened.asked, 1)
	require.False(t, AddrOf(&net.UnixAddr{Name: "x"}).IsValid())
}
