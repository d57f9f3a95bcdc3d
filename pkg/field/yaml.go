package field

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3" // the fastest: rules are large, and are read alongside requests
)

// lines delivers a document line by line, so that a parser that stops has not read far
// beyond the fault.
type lines struct {
	data []byte
	at   int
	form *Form
}

func (l *lines) Read(p []byte) (int, error) {
	if l.at == len(l.data) {
		return 0, io.EOF
	}
	left := l.data[l.at:]
	if end := bytes.IndexByte(left, '\n') + 1; end > 0 {
		left = left[:end]
	}
	n := copy(p, left)
	l.at += n
	return n, nil
}

// reached returns the line of the last character delivered.
func (l *lines) reached() int {
	return 1 + bytes.Count(l.data[:max(l.at-1, 0)], []byte("\n"))
}

func tooDeep(line int) *Error { return fault(line, "is nested more than %d deep", maxDepth) }

func readYAML(source *lines) (n Node, err error) {
	// A panic in the YAML library must reject the document, not stop the program.
	defer func() {
		if r := recover(); r != nil {
			n, err = Node{}, fault(0, "is not valid YAML: %v", r)
		}
	}()
	dec := yaml.NewDecoder(source)
	var bodies []*yaml.Node
	for {
		var doc yaml.Node
		err := dec.Decode(&doc)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return Node{}, source.form.syntax(err, source.reached())
		}
		if body := doc.Content[0]; body.Tag != "!!null" {
			bodies = append(bodies, body)
		}
	}
	switch len(bodies) {
	case 0:
		return Node{}, nil
	case 1:
		return (&expansion{form: source.form}).node(bodies[0], 0)
	}
	line := bodies[1].Line
	return Node{}, fault(line, "contains a second YAML document in line %d; remove what follows --- or ...", line)
}

// expansion turns YAML into a tree. It replaces aliases by their values and counts these:
// a few lines of aliases can expand to billions of values.
type expansion struct {
	form   *Form
	values int
}

func (x *expansion) node(n *yaml.Node, depth int) (Node, error) {
	if err := x.form.surprising(n); err != nil {
		return Node{}, err
	}
	line := n.Line
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if x.values++; x.values > maxValues {
		return Node{}, fault(line, "contains more than %d values once aliases are replaced, in line %d; write fewer aliases", maxValues, line)
	}
	if depth > maxDepth { // an alias within its own anchor, for example
		return Node{}, tooDeep(line)
	}
	if n.Kind == yaml.ScalarNode {
		return Node{Kind: scalarKind(n.Tag), line: int32(line), Text: n.Value}, nil
	}
	out := Node{Kind: List, line: int32(line)}
	step := 1
	if n.Kind == yaml.MappingNode {
		out.Kind, step = Map, 2
		out.Names = make([]string, 0, len(n.Content)/2)
	}
	out.Items = make([]Node, 0, len(n.Content)/step)
	var merged []Node
	for i := step - 1; i < len(n.Content); i += step {
		line, merge := n.Content[i].Line, false
		if step == 2 {
			name := n.Content[i-1]
			// A block map begins at its first name, unless that follows a "?".
			if name.Kind != yaml.ScalarNode || n.Style&yaml.FlowStyle == 0 && name.Column != n.Column {
				return Node{}, fault(name.Line, "uses %q in line %d: only plain names can be keys", "?", name.Line)
			}
			if merge = x.form.Aliases && name.Tag == "!!merge"; !merge {
				if err := x.form.surprising(name); err != nil {
					return Node{}, err
				}
				out.Names = append(out.Names, name.Value)
			}
			line = name.Line // a map below it begins on the next line
		}
		item, err := x.node(n.Content[i], depth+1)
		if err != nil {
			return Node{}, err
		}
		item.line = int32(line)
		if merge {
			merged = append(merged, item)
		} else {
			out.Items = append(out.Items, item)
		}
	}
	if len(merged) > 0 {
		seen := make(map[string]bool)
		for _, name := range out.Names {
			seen[name] = true
		}
		for i := range merged {
			if err := out.merge(&merged[i], seen); err != nil {
				return Node{}, err
			}
		}
	}
	return out, nil
}

// merge adds the members of a map, or of each map of a list, that n does not have.
func (n *Node) merge(from *Node, seen map[string]bool) error {
	switch from.Kind {
	case List:
		for i := range from.Items {
			if from.Items[i].Kind == List {
				return from.Items[i].unmerged()
			}
			if err := n.merge(&from.Items[i], seen); err != nil {
				return err
			}
		}
	case Map:
		for i, name := range from.Names {
			if !seen[name] {
				seen[name] = true
				n.Names, n.Items = append(n.Names, name), append(n.Items, from.Items[i])
			}
		}
	default:
		return from.unmerged()
	}
	return nil
}

func (n *Node) unmerged() error {
	return fault(int(n.line), "merges %s in line %d; write <<: *NAME, where &NAME marks a map", n, n.line)
}

// surprising rejects what YAML readers interpret differently or do not support, and what
// can expand a small document into a huge one.
func (f *Form) surprising(n *yaml.Node) error {
	switch {
	case n.Anchor != "" && !f.Aliases && n.Kind != yaml.AliasNode:
		return noAlias("&", "in", n.Line)
	case n.Kind == yaml.AliasNode && !f.Aliases:
		return noAlias("*", "in", n.Line)
	case n.Tag == "!!merge":
		return noAlias("<<", "in", n.Line)
	case n.Style&yaml.TaggedStyle != 0:
		return fault(n.Line, "uses %q in line %d: tags and directives are not accepted; remove it", n.Tag, n.Line)
	}
	return nil
}

func noAlias(sign, where string, line int) *Error {
	return fault(line, "uses %q %s line %d: anchors, aliases and merges are not accepted; write the values out, or put quotes around them", sign, where, line)
}

func scalarKind(tag string) Kind {
	switch tag {
	case "!!null":
		return Null
	case "!!bool":
		return Bool
	case "!!int", "!!float":
		return Number
	}
	return Text // dates too
}

// remedies are for the faults that the YAML library reports.
var remedies = []struct{ what, remedy string }{
	{"did not find expected '-' indicator", "begin all items of a list in the same column"},
	{"did not find expected key", "begin all fields of a map in the same column, and close every quote and bracket above"},
	{"did not find expected node content", "give the value that is missing, or close the bracket above"},
	{"did not find expected ',' or '}'", "close the { above, and separate its fields by commas"},
	{"did not find expected ',' or ']'", "close the [ above, and separate its items by commas"},
	{"could not find expected ':'", "write name: value, with a space after the colon"},
	{"mapping values are not allowed in this context", "quote a value that contains a colon, or correct the indentation"},
	{"block sequence entries are not allowed in this context", "begin a list in the line after its name"},
	{"found unexpected end of stream", "close the quote"},
	{"found unknown escape character", `write \\ for a backslash, or use single quotes`},
	{"cannot start any token", "indent with spaces instead of tabs, and put values that begin with @ or ` in quotes"},
	{"tab character", "indent with spaces instead of tabs"},
}

// syntax describes a syntax error and where it is. The library gives the line of a
// character, unless it is the first; for a structure it gives its first line, which may be
// that of the list of all rules, so the line reached is more useful.
func (f *Form) syntax(err error, reached int) error {
	where, line := "by", reached
	what := strings.TrimPrefix(err.Error(), "yaml: ")
	if position, rest, found := strings.Cut(what, ": "); found && strings.HasPrefix(position, "line ") {
		what = rest
		if n, err := strconv.Atoi(position[len("line "):]); err == nil && !strings.HasPrefix(what, "did not find expected") {
			where, line = "in", n
		}
	}
	switch {
	case strings.HasPrefix(what, "exceeded max depth"):
		return tooDeep(line)
	case strings.HasPrefix(what, "unknown anchor"), strings.HasSuffix(what, "alphabetic or numeric character"):
		if f.Aliases {
			return fault(line, "uses %q %s line %d, which names no anchor above; write &NAME before its value, or put quotes around a text", "*", where, line)
		}
		return noAlias("*", where, line)
	}
	for _, r := range remedies {
		if strings.Contains(what, r.what) {
			what = fmt.Sprintf("%s; %s", what, r.remedy)
			break
		}
	}
	return fault(line, "is not valid YAML %s line %d: %s", where, line, what)
}
