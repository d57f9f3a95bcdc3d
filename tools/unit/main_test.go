package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSortFollowsHelpers(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "a_test.go"), []byte(`package a
type node struct{ redis *testenv.Server }
func start(t *testing.T) *node { return &node{testenv.Redis(t, testenv.Options{})} }
func (n *node) again(t *testing.T) { start(t) }
func TestDirect(t *testing.T) { testenv.StartConsul(t) }
func TestThroughAHelper(t *testing.T) { start(t) }
func TestThroughAMethod(t *testing.T) { t.Run("x", func(t *testing.T) { (&node{}).again(t) }) }
func TestCommand(t *testing.T) { exec.CommandContext(nil, "ls") }
func TestPure(t *testing.T) { var _ node; testenv.FreePorts(t, 1) }
func FuzzPure(f *testing.F) {}
func helper() {}
`), 0o600))
	p := tests{ImportPath: "example.com/a", Dir: dir, TestGoFiles: []string{"a_test.go"}}
	require.NoError(t, p.sort())
	require.Equal(t, []string{"TestDirect", "TestThroughAHelper", "TestThroughAMethod", "TestCommand"}, p.outside)
	require.Len(t, p.all, 6)

	p = tests{ImportPath: "example.com/internal/testenv", Dir: dir, TestGoFiles: []string{"a_test.go"}}
	require.NoError(t, p.sort())
	require.Equal(t, p.all, p.outside)
}
