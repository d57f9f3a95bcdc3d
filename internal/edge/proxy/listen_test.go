package proxy

import (
	"net"
	"os"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// full is a listener that temporarily has no room.
type full struct {
	net.Listener
	refusals int
	last     error
}

func (f *full) Accept() (net.Conn, error) {
	if f.refusals > 0 {
		f.refusals--
		return nil, &net.OpError{Op: "accept", Err: os.NewSyscallError("accept4", syscall.EMFILE)}
	}
	return nil, f.last
}

func TestListenOutlastsAFlood(t *testing.T) {
	inner := &full{refusals: 3, last: net.ErrClosed}
	_, err := Timeouts{}.Listen(inner).Accept()
	require.ErrorIs(t, err, net.ErrClosed, "a closed listener ends the server, a full one does not")
	require.Zero(t, inner.refusals)
}
