package documents

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestLock(t *testing.T) {
	file := filepath.Join(t.TempDir(), "rules.json")
	release, err := Lock(file)
	require.NoError(t, err)
	_, err = Lock(file)
	require.EqualError(t, err, file+" is in use by another node; give each node its own file")
	release()
	release, err = Lock(file)
	require.NoError(t, err, "as after the death of a node: the lock file stays")
	release()
	require.FileExists(t, file+".lock")

	require.NoError(t, os.WriteFile(file+".d", nil, 0o600))
	release, err = Lock(filepath.Join(file+".d", "rules.json"))
	require.NoError(t, err, "what cannot be written is the cache's to report")
	release()
}
