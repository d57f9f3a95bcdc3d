package house

import (
	"bytes"
	"os"
	"path"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// size is what a package's code outside tests may have.
type size struct{ lines, files int }

// room is enough for one subject.
var room = size{2000, 25}

// large lists the packages that hold several subjects. Their entries may only shrink.
var large = map[string]size{
	"internal/ctl/replay":    {2710, 25},
	"internal/edge/proxy":    {4080, 27},
	"internal/testenv":       {2780, 25},
	"loadtest/run":           {2270, 25},
	"pkg/limiter":            {3000, 25},
	"pkg/limiter/redisstore": {2140, 25},
	"pkg/limiter/rules":      {3590, 25},
	"pkg/region":             {4200, 25},
	"pkg/region/consul":      {3190, 25},
	"tools/bench":            {2520, 25},
}

func TestPackagesAreSmall(t *testing.T) {
	sizes := map[string]size{}
	for _, f := range allGoFiles(t) {
		if !f.isTest() {
			s := sizes[f.folder()]
			sizes[f.folder()] = size{s.lines + bytes.Count(f.text, []byte("\n")), s.files + 1}
		}
	}
	for folder, s := range sizes {
		most, listed := large[folder]
		if !listed {
			most = room
		}
		require.LessOrEqual(t, s.lines, most.lines, "%s has more lines: remove some, or split it by subject", folder)
		require.LessOrEqual(t, s.files, most.files, "%s has more files: split it by subject", folder)
		require.False(t, listed && s.lines <= room.lines && s.files <= room.files, "%s has become small: remove its entry", folder)
		require.False(t, listed && most.lines-s.lines >= 100, "%s has %d lines: lower its entry", folder, s.lines)
	}
	for folder := range large {
		require.Contains(t, sizes, folder, "remove its entry")
	}
}

func TestArchitectureNamesEveryFolder(t *testing.T) {
	text := documents(t)["docs/ARCHITECTURE.md"]
	list := regexp.MustCompile("(?s)\n## Packages\n\n```\n(.*?)```").FindStringSubmatch(text)
	require.NotNil(t, list)
	named := map[string]bool{}
	for row := range strings.Lines(list[1]) {
		names, _, described := strings.Cut(row, "  ")
		require.True(t, described, row)
		for name := range strings.SplitSeq(names, ", ") {
			top, _, _ := strings.Cut(name, "/")
			named[top] = true
			_, err := os.Stat(path.Join(root, name))
			require.NoError(t, err, "ARCHITECTURE names a folder that is gone")
		}
	}
	for _, f := range allGoFiles(t) {
		top, _, _ := strings.Cut(f.path, "/")
		require.True(t, named[top], "%s: add a row for %s to docs/ARCHITECTURE.md", f.path, top)
	}
}
