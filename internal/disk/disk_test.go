package disk

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

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
