package house

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// deps lists the packages that are compiled into these, as releases are.
func deps(t *testing.T, packages string) []string {
	t.Helper()
	list := exec.Command("go", "list", "-deps", "-tags", "grpcnotrace", packages)
	list.Dir = root
	out, err := list.Output()
	require.NoError(t, err)
	return strings.Fields(string(out))
}

// Envoy's generated messages were a third of a node's program. Tests compare ours with them.
func TestProgramsLackEnvoysMessages(t *testing.T) {
	for _, path := range deps(t, "./cmd/...") {
		for _, tree := range []string{"github.com/envoyproxy/", "github.com/cncf/"} {
			require.False(t, strings.HasPrefix(path, tree), "a program imports %s: read and write its messages with internal/edge/envoy", path)
		}
	}
}

// Templates call methods by name, so the linker keeps every exported method: a third of a node's program.
func TestNodesLackTemplates(t *testing.T) {
	require.NotContains(t, deps(t, "./cmd/edge"), "text/template", "go list -deps -tags grpcnotrace -f '{{.ImportPath}} {{.Imports}}' ./cmd/edge names who imports it")
}
