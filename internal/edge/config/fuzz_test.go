package config

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/testenv"
)

// A configuration is read or refused with an error, and never costs more than its bound.
func FuzzConfig(f *testing.F) {
	files, err := filepath.Glob("testdata/bad-config/*.yaml")
	require.NoError(f, err)
	for _, file := range files {
		data, err := os.ReadFile(file)
		require.NoError(f, err)
		f.Add(data)
	}
	f.Add([]byte(least))
	f.Fuzz(func(t *testing.T, data []byte) {
		testenv.Bounded(t, 64<<20, func() {
			c, err := Parse(data)
			if err != nil {
				require.NotEmpty(t, err.Error())
				return
			}
			require.NoError(t, c.Validate(), "a configuration that parses is valid")
		})
	})
}
