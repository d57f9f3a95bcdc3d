package house

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Envoy's generated messages were a third of a node's program. Tests compare ours with them.
func TestProgramsLackEnvoysMessages(t *testing.T) {
	list := exec.Command("go", "list", "-deps", "./cmd/...")
	list.Dir = root
	out, err := list.Output()
	require.NoError(t, err)
	for path := range strings.Lines(string(out)) {
		for _, tree := range []string{"github.com/envoyproxy/", "github.com/cncf/"} {
			require.False(t, strings.HasPrefix(path, tree), "a program imports %s: read and write its messages with internal/edge/envoy", path)
		}
	}
}
