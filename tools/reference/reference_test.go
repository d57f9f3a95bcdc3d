package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPagesAreCurrent(t *testing.T) {
	const root = "../.."
	all, err := pages(root)
	require.NoError(t, err)
	for name, want := range all {
		got, err := os.ReadFile(filepath.Join(root, folder, name))
		require.NoError(t, err, "run make reference")
		require.True(t, want == string(got), "%s is stale: run make reference, and look at git diff", name)
	}
	files, err := os.ReadDir(filepath.Join(root, folder))
	require.NoError(t, err)
	require.Len(t, files, len(all), "a page that make reference does not write")

	want, err := runbooks(root)
	require.NoError(t, err)
	got, err := os.ReadFile(filepath.Join(root, runbookPage))
	require.NoError(t, err)
	require.True(t, want == string(got), "%s is stale: run make reference", runbookPage)

	copies, err := chartRules(root)
	require.NoError(t, err)
	for name, want := range copies {
		got, err := os.ReadFile(filepath.Join(root, chartFiles, name))
		require.NoError(t, err)
		require.True(t, want == string(got), "%s/%s is stale: run make reference", chartFiles, name)
	}
}

func TestHelp(t *testing.T) {
	require.Equal(t, "Takes \\*.x:\n\n```\na\n  - b\n\nc\n```\n\nThen:\n\n```\nd\n```\n", help("Takes *.x:\n\n  a\n    - b\n\n  c\n\nThen:\n  d"))
}
