package dashboards

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the JSON files")

// The files match the Go description, and there are no others.
func TestFiles(t *testing.T) {
	want, err := Files()
	require.NoError(t, err)
	if *update {
		for name, text := range want {
			require.NoError(t, os.WriteFile(name, text, 0o600))
			require.NoError(t, os.Chmod(name, 0o644)) // Grafana runs as another user
		}
	}
	names, err := filepath.Glob("*.json")
	require.NoError(t, err)
	require.Len(t, names, len(want))
	for _, name := range names {
		got, err := os.ReadFile(name)
		require.NoError(t, err)
		require.Equal(t, string(want[name]), string(got), "%s: go test ./dashboards -run TestFiles -update", name)
	}
}

// pages returns the dashboards by file name, from the files that Grafana reads.
func pages(t testing.TB) map[string]*page {
	t.Helper()
	names, err := filepath.Glob("*.json")
	require.NoError(t, err)
	require.NotEmpty(t, names)
	list := map[string]*page{}
	for _, name := range names {
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		list[name], err = parsePage(text)
		require.NoError(t, err, name)
	}
	return list
}
