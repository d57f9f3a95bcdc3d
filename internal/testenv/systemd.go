package testenv

import (
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Systemd receives what services tell their manager.
type Systemd struct {
	Socket string // the value of NOTIFY_SOCKET
	t      testing.TB
	conn   net.PacketConn
}

// StartSystemd listens in a directory, which services must be able to reach.
func StartSystemd(t testing.TB, directory string) *Systemd {
	t.Helper()
	s := &Systemd{Socket: filepath.Join(directory, "notify"), t: t}
	var err error
	s.conn, err = net.ListenPacket("unixgram", s.Socket)
	require.NoError(t, err)
	require.NoError(t, os.Chmod(s.Socket, 0o777)) // for every user, as systemd's
	t.Cleanup(func() { _ = s.conn.Close() })
	return s
}

// Next returns the next state that a service reports.
func (s *Systemd) Next() string {
	s.t.Helper()
	require.NoError(s.t, s.conn.SetReadDeadline(time.Now().Add(Patience)))
	state := make([]byte, 1024)
	n, _, err := s.conn.ReadFrom(state)
	require.NoError(s.t, err, "the service reports nothing")
	return string(state[:n])
}
