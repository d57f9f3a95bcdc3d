package house

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The list of where to find things is true: each path in it exists, and
// each name after a path is a function there. The map names only what exists.
func TestArchitectureIsTrue(t *testing.T) {
	text := documents(t)["docs/ARCHITECTURE.md"]
	_, list, found := strings.Cut(text, "## Where to find things\n")
	require.True(t, found)
	list, _, _ = strings.Cut(list, "\n## ")
	rows := regexp.MustCompile(`(?m)^- (.*?): (.*)$`).FindAllStringSubmatch(list, -1)
	require.Greater(t, len(rows), 10)
	for _, row := range rows {
		var source string
		for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(row[2], -1) {
			if name := m[1]; strings.Contains(name, "/") {
				source = sourceOf(t, name)
			} else {
				require.Regexp(t, `(?m)^(func |func \([^)]*\) |local function )`+regexp.QuoteMeta(name)+`[\[(]`, source, "%s: no function %s", row[1], name)
			}
		}
		require.NotEmpty(t, source, "%s: names no file", row[1])
	}

	_, house, _ := strings.Cut(text, "## Packages\n")
	house, _, _ = strings.Cut(strings.TrimPrefix(strings.TrimSpace(house), "```"), "```")
	for line := range strings.Lines(strings.TrimSpace(house)) {
		folders, _, _ := strings.Cut(line, "  ")
		for folder := range strings.SplitSeq(folders, ", ") {
			sourceOf(t, folder)
		}
	}
}

// sourceOf returns the text of a file, or of all files in a folder.
func sourceOf(t *testing.T, name string) string {
	t.Helper()
	at := filepath.Join(root, filepath.FromSlash(name))
	info, err := os.Stat(at)
	require.NoError(t, err, "docs/ARCHITECTURE.md names %s", name)
	files := []string{at}
	if info.IsDir() {
		files, err = filepath.Glob(at + "/*")
		require.NoError(t, err)
	}
	var all strings.Builder
	for _, file := range files {
		if info, err := os.Stat(file); err == nil && !info.IsDir() {
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			all.Write(text)
			all.WriteByte('\n')
		}
	}
	return all.String()
}
