package testenv

import (
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Segments that a lossy link drops arrive once it recovers: TCP repeats them.
func TestFrontLoses(t *testing.T) {
	f := Forward(t, Redis(t, Options{}).Addr)
	conn, err := net.Dial("tcp", f.Addr)
	require.NoError(t, err)
	defer conn.Close()
	answer := make([]byte, len("+PONG\r\n"))
	answered := func(patience time.Duration) error {
		require.NoError(t, conn.SetDeadline(time.Now().Add(patience)))
		_, err := io.ReadFull(conn, answer)
		return err
	}
	say := func() { _, err := conn.Write([]byte("PING\r\n")); require.NoError(t, err) }
	say()
	require.NoError(t, answered(Patience))

	require.NoError(t, f.Lose(100))
	say()
	err = answered(300 * time.Millisecond)
	require.True(t, errors.Is(err, os.ErrDeadlineExceeded), "%v", err)
	require.NoError(t, f.Lose(0))
	require.NoError(t, answered(Patience))
	require.Equal(t, "+PONG\r\n", string(answer))
}
