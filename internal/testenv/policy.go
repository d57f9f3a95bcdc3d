package testenv

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// Policy returns a Consul ACL policy of deploy/consul, by its name.
func Policy(t testing.TB, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "deploy", "consul", name+".hcl"))
	require.NoError(t, err)
	return string(text)
}
