package testenv

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

// Policy returns the Consul ACL policy that docs/OPERATIONS.md lists under a name.
func Policy(t testing.TB, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.FromSlash("../../docs/OPERATIONS.md"))
	require.NoError(t, err)
	block := regexp.MustCompile("(?s)```hcl\n# " + regexp.QuoteMeta(name) + "\n(.*?)```").FindSubmatch(text)
	require.NotNil(t, block, "no policy %s", name)
	return string(block[1])
}
