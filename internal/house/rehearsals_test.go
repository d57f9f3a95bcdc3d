package house

import (
	"go/ast"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/docs"
)

// REHEARSALS names what rehearses each chapter of OPERATIONS, and each runbook of a router or with a
// command for the lab, and that exists.
func TestEveryRunbookIsRehearsed(t *testing.T) {
	page, list := documents(t)["docs/OPERATIONS.md"], documents(t)["docs/REHEARSALS.md"]
	list, _, _ = strings.Cut(list, "\n## ")
	list = strings.ReplaceAll(list, "\n  ", " ")
	rehearsed := map[string]bool{}
	for _, item := range regexp.MustCompile(`(?m)^- (.*?): (.*)$`).FindAllStringSubmatch(list, -1) {
		names := []string{item[1]}
		if links := regexp.MustCompile(`\[([^]]+)\]\((?:OPERATIONS|RUNBOOKS)\.md#[a-z0-9-]+\)`).FindAllStringSubmatch(item[1], -1); links != nil {
			names = nil
			for _, link := range links {
				names = append(names, link[1])
			}
		}
		for _, name := range names {
			require.False(t, rehearsed[name], "%s is there twice", name)
			rehearsed[name] = true
			requireRehearsal(t, name, item[2])
		}
	}

	prose := regexp.MustCompile("(?ms)^```.*?^```").ReplaceAllString(page, "")
	headings := regexp.MustCompile(`(?m)^##+ (.*)$|^\*\*((?:Maintenance|Adding|Upgrading)[^*]*)\.\*\*`).FindAllStringSubmatch(prose, -1)
	require.Greater(t, len(headings), 20)
	for _, m := range headings {
		name := m[1] + m[2]
		require.True(t, rehearsed[name], "docs/OPERATIONS.md: no rehearsal of %q; name one in docs/REHEARSALS.md", name)
		delete(rehearsed, name)
	}
	for _, r := range docs.Runbooks() {
		needed := strings.HasPrefix(r.Alert, "WeirDNS") || strings.Contains(r.Text, "**Rehearse:**")
		require.True(t, rehearsed[r.Alert] || !needed, "docs/RUNBOOKS.md: no rehearsal of %s; name one in docs/REHEARSALS.md", r.Alert)
		delete(rehearsed, r.Alert)
	}
	require.Empty(t, rehearsed, "docs/REHEARSALS.md: these are not chapters of OPERATIONS or alerts of RUNBOOKS")
}

// Runbooks search logs for text that programs log.
func TestRunbooksSearchForMessages(t *testing.T) {
	var texts []string
	for _, f := range goFiles(t) {
		if f.isTest() {
			continue
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			if s, is := n.(*ast.BasicLit); is && s.Kind == token.STRING {
				texts = append(texts, s.Value)
			}
			return true
		})
	}
	for _, r := range docs.Runbooks() {
		for _, m := range regexp.MustCompile(`--grep "([^"]+)"`).FindAllStringSubmatch(r.Text, -1) {
			logged := func(text string) bool { return strings.Contains(text, m[1]) }
			require.True(t, slices.ContainsFunc(texts, logged), "docs/RUNBOOKS.md: %s: no program logs %q", r.Alert, m[1])
		}
	}
}

// requireRehearsal requires what an item names: make targets, which another test checks, or
// tests of a folder.
func requireRehearsal(t *testing.T, what, item string) {
	var tests []string
	n := 0
	for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(item, -1) {
		switch name := m[1]; {
		case strings.HasPrefix(name, "make "):
			n++
		case strings.HasPrefix(name, "Test"):
			tests = append(tests, name)
		default:
			require.NotEmpty(t, tests, "%s: %s without a test", what, name)
			for _, test := range tests {
				requireTest(t, what, name, test)
				n++
			}
			tests = nil
		}
	}
	require.Positive(t, n, "%s is rehearsed by nothing", what)
	require.Empty(t, tests, "%s: tests of no folder", what)
}

// requireTest finds a test in a folder, and the script that a part of it runs.
func requireTest(t *testing.T, what, folder, name string) {
	test, script, parts := strings.Cut(name, "/")
	files, err := filepath.Glob(filepath.Join(root, filepath.FromSlash(folder), "*_test.go"))
	require.NoError(t, err)
	var all strings.Builder
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		all.Write(text)
	}
	require.Contains(t, all.String(), "\nfunc "+test+"(", "%s: no %s in %s", what, test, folder)
	if parts {
		scripts, err := filepath.Glob(filepath.Join(root, filepath.FromSlash(folder), "testdata", "*", script+".txtar"))
		require.NoError(t, err)
		require.NotEmpty(t, scripts, "%s: no script %s in %s", what, script, folder)
	}
}
