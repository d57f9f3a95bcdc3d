package access

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// After su, the runtime folder may be that of another user.
func TestOfferWithoutARuntimeFolder(t *testing.T) {
	t.Setenv("XDG_RUNTIME_DIR", filepath.Join(t.TempDir(), "missing"))
	t.Setenv("TMPDIR", t.TempDir())
	gate := Local("ana@desk")
	page, token, err := gate.Offer("http://127.0.0.1:8090")
	require.NoError(t, err)
	require.FileExists(t, page)
	require.FileExists(t, token)
	require.NoError(t, gate.Withdraw())
	left, err := os.ReadDir(os.TempDir())
	require.NoError(t, err)
	require.Empty(t, left)
}
