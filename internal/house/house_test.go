// Package house checks habits of the whole module that no single package can check.
package house

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const (
	root   = "../.."
	module = "github.com/weir-edge/weir"
	// A longer file hides a second subject.
	longest = 400
)

// file is a Go file of the module.
type file struct {
	path string // from the root, with slashes
	text []byte
	ast  *ast.File
}

func (f *file) isTest() bool   { return strings.HasSuffix(f.path, "_test.go") }
func (f *file) folder() string { return path.Dir(f.path) }

// places holds the files' positions, for messages.
var places = token.NewFileSet()

func (f *file) at(n ast.Node) string {
	return f.path + ":" + strconv.Itoa(places.Position(n.Pos()).Line)
}

// goFiles returns all Go files except those of nested modules.
func goFiles(t *testing.T) []*file { return walk(t, false) }

// allGoFiles returns also those of nested modules.
func allGoFiles(t *testing.T) []*file { return walk(t, true) }

func walk(t *testing.T, nested bool) []*file {
	t.Helper()
	var files []*file
	require.NoError(t, filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			_, inner := os.Stat(filepath.Join(name, "go.mod"))
			if name != root && (inner == nil && !nested || strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata") {
				return filepath.SkipDir
			}
			return nil
		}
		if filepath.Ext(name) != ".go" {
			return nil
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		parsed, err := parser.ParseFile(places, name, text, parser.ParseComments)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, name)
		files = append(files, &file{filepath.ToSlash(rel), text, parsed})
		return err
	}))
	require.NotEmpty(t, files)
	return files
}

func TestEveryPackageHasAComment(t *testing.T) {
	has, uses := map[string]int{}, map[string]bool{}
	for _, f := range goFiles(t) {
		uses[f.folder()] = true
		if f.ast.Doc == nil {
			continue
		}
		has[f.folder()]++
		want := "Package " + strings.TrimSuffix(f.ast.Name.Name, "_test") + " "
		if f.ast.Name.Name == "main" {
			want = "Command " + path.Base(f.folder()) + " "
		}
		require.True(t, strings.HasPrefix(f.ast.Doc.Text(), want), "%s: the package comment must begin with %q", f.path, want)
	}
	for folder := range uses {
		require.Equal(t, 1, has[folder], "%s must have one package comment", folder)
	}
}

func TestImportDirection(t *testing.T) {
	siblings := []string{"pkg/limiter", "pkg/shedder", "pkg/behavior", "pkg/region"}
	under := func(p, tree string) bool { return p == tree || strings.HasPrefix(p, tree+"/") }
	for _, f := range goFiles(t) {
		for _, spec := range f.ast.Imports {
			target, err := strconv.Unquote(spec.Path.Value)
			require.NoError(t, err)
			own, isOwn := strings.CutPrefix(target, module+"/")
			if strings.HasPrefix(target, "github.com/valyala/fasthttp") && !f.isTest() {
				require.True(t, under(f.folder(), "internal/edge"), "%s: only internal/edge knows fasthttp", f.at(spec))
				require.NotEqual(t, "internal/edge/decide", f.folder(), "%s: decisions know no protocol", f.at(spec))
			}
			if !isOwn {
				continue
			}
			if under(f.folder(), "cmd") {
				require.True(t, under(own, "internal"), "%s: cmd imports only internal, not %s", f.at(spec), own)
			}
			if !under(own, "cmd") && !f.isTest() {
				require.False(t, under(own, "internal/testenv"), "%s: testenv is for tests", f.at(spec))
			}
			require.False(t, under(own, "cmd"), "%s: nothing imports a command", f.at(spec))
			for _, sibling := range siblings {
				if !under(f.folder(), sibling) {
					continue
				}
				for _, other := range siblings {
					require.False(t, other != sibling && under(own, other), "%s: %s must not import its sibling %s", f.at(spec), sibling, other)
				}
				require.False(t, under(own, "internal") && !(f.isTest() && own == "internal/testenv"), "%s: %s must not import internal", f.at(spec), sibling)
			}
			if f.folder() == "internal/edge/decide" {
				require.False(t, under(own, "internal/edge"), "%s: protocols are above the decisions that they ask for", f.at(spec))
			}
			if f.folder() == "pkg/region/consul" {
				require.False(t, under(own, "pkg/region"), "%s: the client of Consul is below the fleet that it serves", f.at(spec))
			}
			// regionctl: commands over rollout, kinds and what commands are made of over fleet over term.
			ctl := []string{"internal/ctl/term", "internal/ctl/fleet", "internal/ctl/rollout", "internal/ctl/kinds", "internal/ctl/command", "internal/ctl/report", "internal/ctl/versions", "internal/ctl/sites", "internal/ctl/unfinished", "internal/ctl/staging", "internal/ctl/change", "internal/ctl/undo", "internal/ctl/status", "internal/ctl/shedder", "internal/ctl/limits", "internal/ctl/requests", "internal/ctl/policy", "internal/ctl/rules", "internal/ctl/dns", "internal/ctl/drain", "internal/ctl/overview", "internal/ctl/clients", "internal/ctl/audit", "internal/ctl/topology", "internal/ctl"}
			if here, there := slices.Index(ctl, f.folder()), slices.Index(ctl, own); here >= 0 && there >= 0 {
				require.GreaterOrEqual(t, here, there, "%s: %s is below %s", f.at(spec), f.folder(), own)
			}
			if f.folder() == "internal/console" && !f.isTest() {
				require.False(t, under(own, "internal/ctl") || under(own, "pkg"), "%s: the console knows commands, and nothing of regions and rules", f.at(spec))
			}
			if f.folder() == "lua" || f.folder() == "pkg/field" {
				require.Fail(t, f.folder()+" imports nothing of the module", f.at(spec))
			}
		}
	}
}

func TestExportedNamesAreDocumented(t *testing.T) {
	for _, f := range goFiles(t) {
		if f.isTest() || !strings.HasPrefix(f.path, "pkg/") {
			continue
		}
		for _, d := range f.ast.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Name.IsExported() && exportedReceiver(d) {
					require.NotEmpty(t, d.Doc.Text(), "%s: %s has no comment", f.at(d), d.Name.Name)
				}
			case *ast.GenDecl:
				checkSpecs(t, f, d)
			}
		}
	}
}

// checkSpecs accepts a comment on the group, on the name, or after it.
func checkSpecs(t *testing.T, f *file, d *ast.GenDecl) {
	t.Helper()
	for _, s := range d.Specs {
		switch s := s.(type) {
		case *ast.TypeSpec:
			if s.Name.IsExported() {
				require.NotEmpty(t, d.Doc.Text()+s.Doc.Text(), "%s: %s has no comment", f.at(s), s.Name.Name)
			}
		case *ast.ValueSpec:
			for _, name := range s.Names {
				if name.IsExported() {
					require.NotEmpty(t, d.Doc.Text()+s.Doc.Text()+s.Comment.Text(), "%s: %s has no comment", f.at(s), name.Name)
				}
			}
		}
	}
}

// exportedReceiver reports whether a method can be called from outside. The methods of
// the standard library's interfaces need no comment.
func exportedReceiver(d *ast.FuncDecl) bool {
	if d.Recv == nil {
		return true
	}
	switch d.Name.Name {
	case "Error", "Unwrap", "String":
		return false
	}
	typ := d.Recv.List[0].Type
	if star, ok := typ.(*ast.StarExpr); ok {
		typ = star.X
	}
	if index, ok := typ.(*ast.IndexExpr); ok {
		typ = index.X
	}
	name, ok := typ.(*ast.Ident)
	return ok && name.IsExported()
}

// Which layers a chain of stores has is known where it is composed. Elsewhere an assertion fails
// silently once another layer is in front, and a test that composes its own proves nothing.
func TestOnlyTheChainKnowsLayers(t *testing.T) {
	layers := []string{"", "/escrow", "/lease", "/memory", "/redisstore", "/report", "/tally"}
	for _, f := range allGoFiles(t) {
		if strings.HasPrefix(f.path, "pkg/") {
			continue
		}
		names := map[string]bool{}
		for _, spec := range f.ast.Imports {
			target, err := strconv.Unquote(spec.Path.Value)
			require.NoError(t, err)
			below, ok := strings.CutPrefix(target, module+"/pkg/limiter")
			if !ok || !slices.Contains(layers, below) {
				continue
			}
			name := path.Base(target)
			if spec.Name != nil {
				name = spec.Name.Name
			}
			names[name] = true
		}
		check := func(typ ast.Expr) {
			if star, ok := typ.(*ast.StarExpr); ok {
				typ = star.X
			}
			if s, ok := typ.(*ast.SelectorExpr); ok {
				of, ok := s.X.(*ast.Ident)
				require.False(t, ok && names[of.Name], "%s: asks for the type of a store's layer; pass the layer itself", f.at(typ))
			}
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.TypeAssertExpr:
				check(n.Type)
			case *ast.TypeSwitchStmt:
				for _, c := range n.Body.List {
					for _, typ := range c.(*ast.CaseClause).List {
						check(typ)
					}
				}
			case *ast.AssignStmt:
				if !f.isTest() || !strings.HasPrefix(f.path, "internal/edge") {
					break
				}
				for _, to := range n.Lhs {
					part, _ := to.(*ast.SelectorExpr)
					if part == nil {
						continue
					}
					of, _ := part.X.(*ast.SelectorExpr)
					replaced := part.Sel.Name == "chain" || of != nil && of.Sel.Name == "decider" && (part.Sel.Name == "Precheck" || part.Sel.Name == "Take")
					require.False(t, replaced, "%s: let New build the node", f.at(n))
				}
			}
			return true
		})
	}
}

// fasthttp removes the repeated slashes of a path one by one, and so takes time in proportion to the
// square of its length: 1 MiB of slashes takes seconds.
func TestNothingLetsFasthttpNormalizePaths(t *testing.T) {
	for _, f := range goFiles(t) {
		if f.isTest() || !strings.HasPrefix(f.path, "internal/edge") {
			continue
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			call, _ := n.(*ast.CallExpr)
			if call == nil || len(call.Args) > 0 {
				return true
			}
			method, _ := call.Fun.(*ast.SelectorExpr)
			if method == nil {
				return true
			}
			of := ""
			switch x := method.X.(type) {
			case *ast.Ident:
				of = x.Name
			case *ast.SelectorExpr:
				of = x.Sel.Name
			}
			name := method.Sel.Name
			bad := name == "URI" || (of == "ctx" || of == "Request") && slices.Contains([]string{"Path", "Host", "QueryArgs"}, name)
			require.False(t, bad, "%s: %s.%s() normalizes the path; use the request's header", f.at(n), of, name)
			return true
		})
	}
}

// A test that sleeps is slow or flaky, and one that skips proves nothing.
func TestTestsNeitherSleepNorSkip(t *testing.T) {
	for _, f := range goFiles(t) {
		if !f.isTest() {
			continue
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			s, ok := call.Fun.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			receiver, _ := s.X.(*ast.Ident)
			require.False(t, receiver != nil && receiver.Name == "time" && s.Sel.Name == "Sleep" && !usesSynctest(f), "%s: wait for a condition", f.at(n))
			switch s.Sel.Name {
			case "Skip", "Skipf", "SkipNow":
				require.False(t, receiver != nil && (receiver.Name == "t" || receiver.Name == "b" || receiver.Name == "f"), "%s: fail, and say what to install", f.at(n))
			}
			return true
		})
	}
}

// usesSynctest reports whether time in f is virtual, so that sleeping is exact.
func usesSynctest(f *file) bool {
	for _, spec := range f.ast.Imports {
		if spec.Path.Value == `"testing/synctest"` {
			return true
		}
	}
	return false
}

func TestFilesAreShortAndFinished(t *testing.T) {
	unfinished := regexp.MustCompile(`\b(TO` + `DO|FIX` + `ME|XX` + `X)\b`)
	for _, f := range allGoFiles(t) {
		if n := bytes.Count(f.text, []byte("\n")); !f.isTest() {
			require.LessOrEqual(t, n, longest, "%s has %d lines", f.path, n)
		}
		if m := unfinished.FindIndex(f.text); m != nil {
			require.Fail(t, "unfinished", "%s:%d", f.path, 1+bytes.Count(f.text[:m[0]], []byte("\n")))
		}
	}
}

// documents returns the pages in the root, in docs and the dashboards' by their path from the root.
func documents(t *testing.T) map[string]string {
	t.Helper()
	names, err := filepath.Glob(root + "/docs/*.md")
	require.NoError(t, err)
	generated, err := filepath.Glob(root + "/docs/reference/*.md")
	require.NoError(t, err)
	names = append(names, generated...)
	texts := map[string]string{}
	for _, name := range append(names, root+"/README.md", root+"/CONTRIBUTING.md", root+"/SECURITY.md", root+"/dashboards/README.md") {
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		rel, err := filepath.Rel(root, name)
		require.NoError(t, err)
		texts[filepath.ToSlash(rel)] = string(text)
	}
	return texts
}

func TestDocumentedTargetsExist(t *testing.T) {
	makefile, err := os.ReadFile(root + "/Makefile")
	require.NoError(t, err)
	targets := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^([a-z][a-z0-9-]*):`).FindAllStringSubmatch(string(makefile), -1) {
		targets[m[1]] = true
	}
	for name, text := range documents(t) {
		// In code only: prose makes other things too.
		for _, code := range regexp.MustCompile("(?ms)^```.*?^```|`[^`\n]+`|^    .*?$").FindAllString(text, -1) {
			for _, m := range regexp.MustCompile(`\bmake ([a-z][a-z0-9-]*)`).FindAllStringSubmatch(code, -1) {
				require.True(t, targets[m[1]], "%s: make %s: no such target", name, m[1])
			}
		}
	}
}

func TestDocumentedLinksExist(t *testing.T) {
	texts := documents(t)
	for name, text := range texts {
		prose := regexp.MustCompile("(?ms)^```.*?^```").ReplaceAllString(text, "")
		for _, m := range regexp.MustCompile(`\]\(([^)\s]+)\)`).FindAllStringSubmatch(prose, -1) {
			link := m[1]
			if strings.Contains(link, "://") || strings.HasPrefix(link, "mailto:") {
				continue
			}
			target, anchor, _ := strings.Cut(link, "#")
			at := name
			if target != "" {
				at = path.Join(path.Dir(name), target)
				_, err := os.Stat(filepath.Join(root, filepath.FromSlash(at)))
				require.NoError(t, err, "%s: %s leads nowhere", name, link)
			}
			if anchor != "" && texts[at] != "" {
				require.Contains(t, anchors(texts[at]), anchor, "%s: %s names no heading", name, link)
			}
		}
	}
}

// anchors returns the headings of a document as links name them.
func anchors(text string) []string {
	var list []string
	for _, m := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(text, -1) {
		anchor := strings.ReplaceAll(strings.ToLower(m[1]), " ", "-")
		list = append(list, regexp.MustCompile(`[^\p{L}\p{N}_-]`).ReplaceAllString(anchor, ""))
	}
	return list
}
