package listeners

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/edge/config"
)

func capOf(n int) *Clients {
	return &Clients{config: &config.Server{MaxConnectionsPerClient: n}, exempt: func(netip.Addr) bool { return false }, open: map[netip.Prefix]int{}}
}

func TestConnectionsOfAnIPv6Client(t *testing.T) {
	c := capOf(2)
	var open []*countedConn
	enter := func(addr string) bool {
		conn := &countedConn{}
		ok := c.enter(conn, netip.MustParseAddr(addr))
		if ok {
			open = append(open, conn)
		}
		return ok
	}
	require.True(t, enter("2001:db8:0:1::1"))
	require.True(t, enter("2001:db8:0:1:ffff::2"))
	require.False(t, enter("2001:db8:0:1:8000::3"))
	require.True(t, enter("2001:db8:0:2::1"), "another /64")
	require.True(t, enter("192.0.2.1"))
	c.leave(open[0])
	require.True(t, enter("2001:db8:0:1::4"))
	for _, conn := range open {
		c.leave(conn)
	}
	require.Empty(t, c.open)
}

// A connection that is closed while its header arrives counts for nobody afterwards.
func TestClosedWithinTheHeader(t *testing.T) {
	c := capOf(1)
	conn := &countedConn{}
	c.leave(conn)
	require.True(t, c.enter(conn, netip.MustParseAddr("203.0.113.7")))
	require.Empty(t, c.open)
	c.leave(conn)
	require.Empty(t, c.open)
}
