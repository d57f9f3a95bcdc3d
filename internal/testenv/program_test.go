package testenv

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// Compiled programs do not pile up in the folder for temporary files.
func TestProcessDirEndsWithTheProcess(t *testing.T) {
	dir, kept, err := processDir()
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "program"), nil, 0o700))
	require.NoError(t, kept.Close()) // as when the process ends
	require.Eventually(t, func() bool { _, err := os.Stat(dir); return os.IsNotExist(err) }, Patience, pollEvery)
}
