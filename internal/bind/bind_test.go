package bind

import (
	"errors"
	"net"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestErrorsSayWhatToDo(t *testing.T) {
	for cause, want := range map[error]string{
		syscall.EACCES: "listen: permission denied; a port below 1024 needs ", syscall.EPERM: "cap_net_bind_service",
		syscall.EADDRINUSE: "listen: address already in use; stop the program ", syscall.EADDRNOTAVAIL: "; this host does not have that address ",
	} {
		err := Error(&net.OpError{Op: "listen", Err: cause})
		require.ErrorContains(t, err, want)
		require.ErrorIs(t, err, cause)
	}
	other := errors.New("else")
	require.Equal(t, other, Error(other))
}

func TestTCP(t *testing.T) {
	l, err := TCP("127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	_, err = TCP(l.Addr().String())
	require.ErrorContains(t, err, l.Addr().String()+": bind: address already in use; stop the program that uses it ")
}
