package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"strings"
)

// fields are the rows of a table: all fields of a document's type, with their comments.
type fields struct {
	root     string
	tag      string            // that names fields: yaml or json
	leaf     reflect.Type      // whose fields the page does not list
	comments map[string]string // by package, type and field
	flat     bool              // leave out the fields of fields
	rows     strings.Builder
}

// add adds the fields of v, whose values are the defaults.
func (f *fields) add(v reflect.Value, path string) error {
	t := v.Type()
	for i := range t.NumField() {
		field := t.Field(i)
		name, option, _ := strings.Cut(field.Tag.Get(f.tag), ",")
		if option == "inline" {
			inner, flat := v.Field(i), f.flat
			if inner.Kind() == reflect.Pointer { // a document, whose comments say what its fields contain
				inner, f.flat = inner.Elem(), true
			}
			if err := f.add(inner, path); err != nil {
				return err
			}
			f.flat = flat
			continue
		}
		if name == "" || name == "-" {
			continue
		}
		meaning, err := f.comment(t, field.Name)
		if err != nil {
			return err
		}
		initial := ""
		if field.Tag.Get("required") != "" {
			initial = "required"
		}
		inner, items := field.Type, ""
		for inner.Kind() == reflect.Pointer || inner.Kind() == reflect.Slice {
			if inner.Kind() == reflect.Slice {
				items = "[]"
			}
			inner = inner.Elem()
		}
		isMap := inner.Kind() == reflect.Struct && inner.PkgPath() != "net/netip"
		if !isMap && inner.Kind() != reflect.Map && !v.Field(i).IsZero() {
			initial = "`" + strings.ReplaceAll(strings.Join(strings.Fields(fmt.Sprint(v.Field(i))), ", "), "m0s", "m") + "`"
		}
		kind := kinds.Replace(items + inner.String())
		if isMap || inner.Kind() == reflect.Map {
			kind = kinds.Replace(items + "map")
		}
		fmt.Fprintf(&f.rows, "| `%s%s` | %s | %s | %s |\n", path, name, kind, initial, escape(meaning))
		if !isMap || f.flat || inner == f.leaf || inner == t {
			continue
		}
		below := reflect.Zero(inner)
		if field.Type == inner {
			below = v.Field(i)
		}
		if err := f.add(below, path+name+items+"."); err != nil {
			return err
		}
	}
	return nil
}

// kinds are types in words.
var kinds = strings.NewReplacer("[]netip.Addr", "addresses", "[]netip.Prefix", "networks", "[]string", "strings", "[]map", "list of maps",
	"time.Duration", "duration", "shedding.Duration", "duration", "float64", "number", "int64", "integer", "int", "integer", "bool", "true or false")

// comment returns a field's comment without the field's name.
func (f *fields) comment(t reflect.Type, name string) (string, error) {
	key := func(typ, field string) string { return t.PkgPath() + "." + typ + "." + field }
	if _, read := f.comments[key("", "")]; !read {
		f.comments[key("", "")] = "read"
		files, err := filepath.Glob(filepath.Join(f.root, strings.TrimPrefix(t.PkgPath(), "github.com/weir-edge/weir/"), "*.go"))
		if err != nil {
			return "", err
		}
		for _, file := range files {
			parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments)
			if err != nil {
				return "", err
			}
			ast.Inspect(parsed, func(n ast.Node) bool {
				spec, _ := n.(*ast.TypeSpec)
				if spec == nil {
					return true
				}
				if s, is := spec.Type.(*ast.StructType); is {
					for _, field := range s.Fields.List {
						for _, n := range field.Names {
							f.comments[key(spec.Name.Name, n.Name)] = field.Doc.Text() + field.Comment.Text()
						}
					}
				}
				return false
			})
		}
	}
	text := strings.Join(strings.Fields(f.comments[key(t.Name(), name)]), " ")
	if text == "" {
		return "", fmt.Errorf("%s has no comment", key(t.Name(), name))
	}
	for _, lead := range []string{name + " ", "is ", "are "} {
		text = strings.TrimPrefix(text, lead)
	}
	return strings.TrimSuffix(text, "."), nil
}
