//go:build linux

package term

import (
	"bytes"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestColumns(t *testing.T) {
	terminal, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	require.NoError(t, err)
	defer terminal.Close()
	require.NoError(t, unix.IoctlSetWinsize(int(terminal.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: 133}))
	t.Setenv("COLUMNS", "99")
	require.Equal(t, 133, columns(terminal), "it knows best")
	require.Equal(t, 99, columns(&bytes.Buffer{}))
	t.Setenv("COLUMNS", "wide")
	require.Equal(t, usualColumns, columns(&bytes.Buffer{}))
}
