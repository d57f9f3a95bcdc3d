package testenv

import (
	"net"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// Serve runs an installed program in its own folder until t ends, and waits until it
// accepts connections on all of these ports.
func Serve(t testing.TB, ports []int, name string, args ...string) {
	t.Helper()
	binary, err := exec.LookPath(name)
	require.NoError(t, err, "run make deps")
	dir := t.TempDir()
	log := filepath.Join(dir, "log")
	proc, err := startProcess(dir, log, binary, args...)
	require.NoError(t, err, "start %s", name)
	t.Cleanup(proc.kill)
	for _, port := range ports {
		err := poll(Patience, func() error {
			if proc.gone() {
				return errGone
			}
			conn, err := net.Dial("tcp", address(port))
			if err != nil {
				return err
			}
			return conn.Close()
		})
		if err != nil {
			t.Fatalf("testenv: %s does not start: %v\n%s", name, err, lastLines(log, 20))
		}
	}
}
