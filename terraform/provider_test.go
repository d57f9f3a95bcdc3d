package terraform_test

import (
	"encoding/json"
	"flag"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/stretchr/testify/require"
)

var provider = flag.String("provider", "", "write testdata/aws-provider.json from this folder, an unpacked "+schemaPackage)

// aws returns the module's blocks of the AWS provider, by type: "aws_x", or "data.aws_x".
func (m *module) aws() map[string]*hclsyntax.Block {
	found := map[string]*hclsyntax.Block{}
	for _, blocks := range []map[string]*hclsyntax.Block{m.resources, m.data} {
		for _, b := range blocks {
			if strings.HasPrefix(b.Labels[0], "aws_") {
				found[typeOf(b)] = b
			}
		}
	}
	return found
}

func typeOf(b *hclsyntax.Block) string {
	if b.Type == "data" {
		return "data." + b.Labels[0]
	}
	return b.Labels[0]
}

// Every attribute and block that the modules set or read exists in the provider, and what
// the provider requires is set.
func TestProviderSchema(t *testing.T) {
	if *provider != "" {
		updateSchema(t, *provider)
	}
	var schema providerSchema
	require.NoError(t, json.Unmarshal([]byte(read(t, schemaFile)), &schema))
	require.Equal(t, schemaPackage, schema.Package, "make terraform-schema")
	used := map[string]bool{}
	for dir, m := range allModules(t) {
		for _, blocks := range []map[string]*hclsyntax.Block{m.resources, m.data} {
			for name, b := range blocks {
				if !strings.HasPrefix(name, "aws_") {
					continue
				}
				used[typeOf(b)] = true
				known := schema.Types[typeOf(b)]
				require.NotNil(t, known, "%s: %s: make terraform-schema", dir, typeOf(b))
				known.check(t, dir+": "+name, b.Body, true)
			}
		}
		reads := 0
		m.expressions(func(node hclsyntax.Node) {
			for _, r := range readsOf(node) {
				known := schema.Types[r.kind]
				require.NotNil(t, known, "%s: %s", r.at, r.kind)
				require.True(t, known.has(r.attribute), "%s: %s has no %s", r.at, r.kind, r.attribute)
				reads++
			}
		})
		if dir == "modules/region" {
			require.Greater(t, reads, 50, "references are not found any more")
		}
	}
	require.Equal(t, slices.Sorted(maps.Keys(used)), slices.Sorted(maps.Keys(schema.Types)), "make terraform-schema")
}

// has reports whether an attribute can be read.
func (b *block) has(name string) bool {
	return b.Attributes[name] != "" || b.Blocks[name] != nil || slices.Contains(b.Computed, name)
}

// check compares a body with its schema.
func (b *block) check(t *testing.T, at string, body *hclsyntax.Body, root bool) {
	t.Helper()
	given := map[string]bool{}
	for name, a := range body.Attributes {
		given[name] = true
		if root && slices.Contains([]string{"for_each", "count", "depends_on", "provider"}, name) {
			continue
		}
		kind := b.Attributes[name]
		require.NotEmpty(t, kind, "%s: has no attribute %s in the provider", at, name)
		switch a.Expr.(type) {
		case *hclsyntax.TupleConsExpr:
			require.Equal(t, "list", kind, "%s: %s takes no list", at, name)
		case *hclsyntax.ObjectConsExpr:
			require.NotEqual(t, "list", kind, "%s: %s takes a list", at, name)
		case *hclsyntax.TemplateExpr:
			require.Equal(t, "one", kind, "%s: %s takes no single value", at, name)
		}
	}
	for _, inner := range body.Blocks {
		name, content := inner.Type, inner.Body
		if root && name == "lifecycle" {
			continue
		}
		if name == "dynamic" {
			name = inner.Labels[0]
			require.Len(t, content.Blocks, 1, "%s: dynamic %s", at, name)
			content = content.Blocks[0].Body
		}
		given[name] = true
		require.NotNil(t, b.Blocks[name], "%s: has no block %s in the provider", at, name)
		b.Blocks[name].check(t, at+"."+name, content, false)
	}
	for _, name := range b.Required {
		require.True(t, given[name], "%s: the provider requires %s", at, name)
	}
}

// reading is an attribute that an expression reads of a resource or a data source.
type reading struct{ kind, attribute, at string }

// readsOf returns what one node reads: aws_x.y.attribute, aws_x.y[…].attribute, and
// v.attribute in a for over aws_x.y.
func readsOf(node hclsyntax.Node) []reading {
	whole := func(t hcl.Traversal) (kind string, rest hcl.Traversal) {
		names := []string{}
		for _, step := range t {
			switch s := step.(type) {
			case hcl.TraverseRoot:
				names = append(names, s.Name)
			case hcl.TraverseAttr:
				names = append(names, s.Name)
			}
		}
		at := 0
		if len(names) > 2 && names[0] == "data" {
			at = 1
		}
		if len(names) < at+2 || !strings.HasPrefix(names[at], "aws_") {
			return "", nil
		}
		return strings.Join(names[:at+1], "."), t[at+2:]
	}
	read := func(kind string, rest hcl.Traversal) []reading {
		for _, step := range rest {
			if attr, ok := step.(hcl.TraverseAttr); ok {
				return []reading{{kind, attr.Name, step.SourceRange().String()}}
			}
		}
		return nil
	}
	switch e := node.(type) {
	case *hclsyntax.ScopeTraversalExpr:
		if kind, rest := whole(e.Traversal); kind != "" {
			return read(kind, rest)
		}
	case *hclsyntax.RelativeTraversalExpr:
		if index, ok := e.Source.(*hclsyntax.IndexExpr); ok {
			if scope, ok := index.Collection.(*hclsyntax.ScopeTraversalExpr); ok {
				if kind, rest := whole(scope.Traversal); kind != "" && len(rest) == 0 {
					return read(kind, e.Traversal)
				}
			}
		}
	case *hclsyntax.ForExpr:
		scope, ok := e.CollExpr.(*hclsyntax.ScopeTraversalExpr)
		if !ok {
			return nil
		}
		kind, rest := whole(scope.Traversal)
		if kind == "" || len(rest) > 0 {
			return nil
		}
		var all []reading
		for _, part := range []hclsyntax.Expression{e.KeyExpr, e.ValExpr, e.CondExpr} {
			if part == nil {
				continue
			}
			for _, t := range part.Variables() {
				if t.RootName() == e.ValVar {
					all = append(all, read(kind, t[1:])...)
				}
			}
		}
		return all
	}
	return nil
}
