package house

import (
	"flag"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the version of CHANGELOG.md into all files that name it")

// The newest version in CHANGELOG.md is weir's. Pages, configurations and the middleware's go.mod name the same.
func TestVersionIsTheChangelogs(t *testing.T) {
	changelog, err := os.ReadFile(root + "/CHANGELOG.md")
	require.NoError(t, err)
	heading := regexp.MustCompile(`(?m)^## v(\d+\.\d+\.\d+)$`).FindSubmatch(changelog)
	require.NotNil(t, heading, "CHANGELOG.md has no heading such as ## v0.1.0")
	version := string(heading[1])

	// weir:v0.1.0, weir_0.1.0_linux_amd64.deb, weir-0.1.0.tgz, weir/cmd/edge@v0.1.0, weir/v0.1.0/…, VERSION=v0.1.0
	named := regexp.MustCompile(`((?:\bweir|\bregionctl)[:_-]v?|\bweir(?:/[a-z./]+)?@v|\bweir/v?|\bVERSION=v)(\d+\.\d+\.\d+)\b`)
	required := regexp.MustCompile(`(\bgithub\.com/weir-edge/weir v)(\d+\.\d+\.\d+)\b`)
	found := 0
	require.NoError(t, filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if name != root && (strings.HasPrefix(d.Name(), ".") || slices.Contains([]string{"bin", "dist", "testdata"}, d.Name())) {
				return filepath.SkipDir
			}
			return nil
		}
		pattern := named
		switch {
		case strings.HasSuffix(name, "middleware/go.mod"):
			pattern = required
		case d.Name() == "CHANGELOG.md" || !slices.Contains([]string{".md", ".yaml", ".tf", ".example"}, filepath.Ext(name)):
			return nil
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		for _, m := range pattern.FindAllSubmatch(text, -1) {
			found++
			if !*update {
				require.Equal(t, version, string(m[2]), "%s: %s; run go test ./internal/house -run Version -update", name, m[0])
			}
		}
		if *update {
			return os.WriteFile(name, pattern.ReplaceAll(text, []byte("${1}"+version)), 0o644)
		}
		return nil
	}))
	require.NotZero(t, found)
}
