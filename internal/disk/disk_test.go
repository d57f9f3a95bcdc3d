package disk

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// Whoever may write to the folder could otherwise keep a process from starting.
func TestReadDoesNotWaitForAWriter(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	require.NoError(t, syscall.Mkfifo(pipe, 0o600))
	_, err := Read(pipe, 1)
	require.ErrorContains(t, err, "pipe is not a regular file; remove it")
	_, err = Read(t.TempDir(), 1)
	require.ErrorContains(t, err, "is not a regular file; remove it")
}

func TestReplace(t *testing.T) {
	file := filepath.Join(t.TempDir(), "new", "file")
	require.NoError(t, Replace(file, []byte("a longer one")))
	require.NoError(t, os.WriteFile(file+".next", []byte("of a process that died"), 0o600))
	require.NoError(t, Replace(file, []byte("short")))
	got, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, "short", string(got))
	info, err := os.Stat(file)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode())
	left, err := os.ReadDir(filepath.Dir(file))
	require.NoError(t, err)
	require.Len(t, left, 1)
	require.Error(t, Replace(filepath.Join(file, "below"), nil))
}
