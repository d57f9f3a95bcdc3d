package disk

import (
	"bytes"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
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
	for _, left := range []string{file + ".next", file + ".next-7"} {
		require.NoError(t, os.WriteFile(left, []byte("of a process that died"), 0o600))
		require.NoError(t, os.Chtimes(left, time.Time{}, time.Now().Add(-abandoned-time.Minute)))
	}
	busy := file + ".next-8"
	require.NoError(t, os.WriteFile(busy, []byte("of another process"), 0o600))
	require.NoError(t, Replace(file, []byte("short")))
	got, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, "short", string(got))
	info, err := os.Stat(file)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode())
	left, err := os.ReadDir(filepath.Dir(file))
	require.NoError(t, err)
	require.Len(t, left, 2)
	require.FileExists(t, busy)
	require.Error(t, Replace(filepath.Join(file, "below"), nil))

	taken := filepath.Join(t.TempDir(), "folder")
	require.NoError(t, os.Mkdir(taken, 0o700))
	for range 2 {
		require.EqualError(t, Replace(taken, nil), "rename "+taken+": file exists")
	}
}

// Two processes that were given one file do not damage it.
func TestReplaceByTwo(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	contents := [][]byte{bytes.Repeat([]byte("a"), 1<<20), bytes.Repeat([]byte("b"), 2<<20)}
	var writers sync.WaitGroup
	for _, data := range contents {
		writers.Go(func() {
			for range 20 {
				assert.NoError(t, Replace(file, data))
				got, err := os.ReadFile(file)
				assert.NoError(t, err)
				assert.True(t, bytes.Equal(got, contents[0]) || bytes.Equal(got, contents[1]))
			}
		})
	}
	writers.Wait()
	left, err := os.ReadDir(filepath.Dir(file))
	require.NoError(t, err)
	require.Len(t, left, 1)
}
