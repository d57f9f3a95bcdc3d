package terraform_test

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclparse"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/stretchr/testify/require"
)

// module is one folder of .tf files.
type module struct {
	dir                               string
	files                             map[string][]byte
	variables, outputs                map[string]*hclsyntax.Block
	locals                            map[string]*hclsyntax.Attribute
	resources, data, ephemeral        map[string]*hclsyntax.Block // by "type.name"
	modules, loose                    map[string]*hclsyntax.Block
	usedVariables, usedLocals         map[string]bool
	usedResources, usedData, usedMods map[string]string // what is referenced, and where
}

// load reads a folder of .tf files and the references in its expressions.
func load(t *testing.T, dir string) *module {
	t.Helper()
	m := &module{
		dir: dir, files: map[string][]byte{},
		variables: map[string]*hclsyntax.Block{}, outputs: map[string]*hclsyntax.Block{}, locals: map[string]*hclsyntax.Attribute{},
		resources: map[string]*hclsyntax.Block{}, data: map[string]*hclsyntax.Block{}, ephemeral: map[string]*hclsyntax.Block{}, modules: map[string]*hclsyntax.Block{}, loose: map[string]*hclsyntax.Block{},
		usedVariables: map[string]bool{}, usedLocals: map[string]bool{},
		usedResources: map[string]string{}, usedData: map[string]string{}, usedMods: map[string]string{},
	}
	names, err := filepath.Glob(filepath.Join(dir, "*.tf"))
	require.NoError(t, err)
	parser := hclparse.NewParser()
	for _, name := range names {
		file, diags := parser.ParseHCLFile(name)
		require.False(t, diags.HasErrors(), "%s", diags)
		m.files[name] = file.Bytes
		for _, b := range file.Body.(*hclsyntax.Body).Blocks {
			m.declare(t, b)
		}
	}
	for _, name := range names {
		file, _ := parser.ParseHCLFile(name)
		for _, b := range file.Body.(*hclsyntax.Body).Blocks {
			m.follow(t, b, nil)
		}
	}
	return m
}

// declare records what a top-level block declares.
func (m *module) declare(t *testing.T, b *hclsyntax.Block) {
	t.Helper()
	put := func(in map[string]*hclsyntax.Block, name string) {
		require.NotContains(t, in, name, "%s: declared twice", b.Range())
		in[name] = b
	}
	switch b.Type {
	case "variable":
		put(m.variables, b.Labels[0])
	case "output":
		put(m.outputs, b.Labels[0])
	case "resource":
		put(m.resources, b.Labels[0]+"."+b.Labels[1])
	case "ephemeral":
		put(m.ephemeral, b.Labels[0]+"."+b.Labels[1])
	case "data":
		put(m.data, b.Labels[0]+"."+b.Labels[1])
	case "module":
		put(m.modules, b.Labels[0])
	case "locals":
		for name, a := range b.Body.Attributes {
			require.NotContains(t, m.locals, name, "%s: declared twice", a.Range())
			m.locals[name] = a
		}
	case "terraform", "provider", "check", "moved":
		m.loose[b.Type] = b
	default:
		require.Fail(t, "unknown block", "%s: %s", b.Range(), b.Type)
	}
}

// follow records the references in a block's expressions. iterators are those of the
// dynamic blocks around it.
func (m *module) follow(t *testing.T, b *hclsyntax.Block, iterators []string) {
	t.Helper()
	if b.Type == "dynamic" {
		iterators = append(slices.Clone(iterators), b.Labels[0])
	}
	for name, a := range b.Body.Attributes {
		// These hold no references: a type, the names of the block's own arguments, and
		// keywords.
		switch b.Type + "." + name {
		case "variable.type", "lifecycle.ignore_changes", "provisioner.when", "provisioner.on_failure":
			continue
		}
		for _, traversal := range a.Expr.Variables() {
			m.note(t, traversal, iterators)
		}
	}
	for _, inner := range b.Body.Blocks {
		m.follow(t, inner, iterators)
	}
}

func (m *module) note(t *testing.T, traversal hcl.Traversal, iterators []string) {
	t.Helper()
	at := traversal.SourceRange().String()
	step := func(i int) string {
		require.Greater(t, len(traversal), i, "%s: incomplete reference", at)
		attr, ok := traversal[i].(hcl.TraverseAttr)
		require.True(t, ok, "%s: not a name", at)
		return attr.Name
	}
	switch root := traversal.RootName(); root {
	case "each", "count", "self", "path", "terraform":
	case "var":
		m.usedVariables[step(1)] = true
		require.NotNil(t, m.variables[step(1)], "%s: no such variable", at)
	case "local":
		m.usedLocals[step(1)] = true
		require.NotNil(t, m.locals[step(1)], "%s: no such local", at)
	case "module":
		m.usedMods[step(1)] = at
		require.NotNil(t, m.modules[step(1)], "%s: no such module", at)
	case "data":
		m.usedData[step(1)+"."+step(2)] = at
		require.NotNil(t, m.data[step(1)+"."+step(2)], "%s: no such data source", at)
	case "ephemeral":
		require.NotNil(t, m.ephemeral[step(1)+"."+step(2)], "%s: no such ephemeral resource", at)
	default:
		if slices.Contains(iterators, root) {
			return
		}
		require.Contains(t, root, "_", "%s: %s cannot be referenced", at, root)
		m.usedResources[root+"."+step(1)] = at
		require.NotNil(t, m.resources[root+"."+step(1)], "%s: no such resource", at)
	}
}

// expressions calls visit with every expression of the module.
func (m *module) expressions(visit func(node hclsyntax.Node)) {
	all := []map[string]*hclsyntax.Block{m.variables, m.outputs, m.resources, m.data, m.ephemeral, m.modules, m.loose}
	for _, blocks := range all {
		for _, b := range blocks {
			_ = hclsyntax.VisitAll(b.Body, func(node hclsyntax.Node) hcl.Diagnostics { visit(node); return nil })
		}
	}
	for _, a := range m.locals {
		_ = hclsyntax.VisitAll(a.Expr, func(node hclsyntax.Node) hcl.Diagnostics { visit(node); return nil })
	}
}

// text returns the source of a range on one line.
func (m *module) text(r hcl.Range) string {
	return strings.Join(strings.Fields(string(r.SliceBytes(m.files[r.Filename]))), " ")
}

// literal returns the value of an attribute that depends on nothing.
func literal(t *testing.T, a *hclsyntax.Attribute) string {
	t.Helper()
	value, diags := a.Expr.Value(nil)
	require.False(t, diags.HasErrors(), "%s", diags)
	return value.AsString()
}

// source returns the folder that a module block names.
func (m *module) source(t *testing.T, b *hclsyntax.Block) string {
	t.Helper()
	require.Contains(t, b.Body.Attributes, "source", "%s", b.Range())
	return filepath.Join(m.dir, literal(t, b.Body.Attributes["source"]))
}

// allModules returns the folders below this one that hold .tf files.
func allModules(t *testing.T) map[string]*module {
	t.Helper()
	found := map[string]*module{}
	require.NoError(t, filepath.WalkDir(".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && name != "." && strings.HasPrefix(d.Name(), ".") {
			return filepath.SkipDir
		}
		if dir := filepath.Dir(name); filepath.Ext(name) == ".tf" && found[dir] == nil {
			found[dir] = load(t, dir)
		}
		return nil
	}))
	for _, want := range []string{"aws/global", "modules/cloud-init", "modules/dns", "modules/global", "modules/region"} {
		require.Contains(t, slices.Collect(maps.Keys(found)), filepath.FromSlash(want))
	}
	return found
}

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	require.NoError(t, err)
	return string(text)
}
