package rules

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"

	"go.yaml.in/yaml/v3" // the quickest: rules are large, and are read beside requests
)

// tree is a document before it has a meaning. Decoding by hand from it, instead
// of into structs, is what lets one pass report every wrong field by its path.
type tree struct {
	kind  kind
	text  string   // scalars
	names []string // maps: the name of items[i]; duplicates are kept
	items []tree   // maps and lists
}

type kind uint8

const (
	nullKind kind = iota
	boolKind
	numberKind
	stringKind
	listKind
	mapKind
)

func (k kind) String() string {
	return [...]string{"nothing", "a boolean", "a number", "a string", "a list", "a map"}[k]
}

// maxDepth is far beyond what the schema needs, and keeps a hostile document from
// exhausting the stack.
const maxDepth = 16

var errEmpty = errors.New("is empty; write rules: [] for no rules")

// read returns the tree of a YAML or JSON document.
func read(data []byte, rest func()) (tree, error) {
	if len(data) > MaxBytes {
		return tree{}, fmt.Errorf("is larger than %d bytes (got %d); split the rules or shorten them", MaxBytes, len(data))
	}
	if !utf8.Valid(data) {
		return tree{}, errors.New("is not valid UTF-8")
	}
	if err := plain(data, rest); err != nil {
		return tree{}, err
	}
	source := &lines{data: data, rest: rest}
	if json.Valid(data) {
		// YAML is nearly a superset of JSON: tabs and escaped slashes differ.
		dec := json.NewDecoder(source)
		dec.UseNumber()
		return fromJSON(dec, 0)
	}
	return fromYAML(source)
}

// plain refuses what can be told from the characters alone. A node of YAML takes a
// hundred times the memory of its text, so they are counted before there are any, by
// the punctuation that each needs.
func plain(data []byte, rest func()) error {
	line, values := 0, 0
	for text := range bytes.Lines(data) {
		rest()
		line++
		if text[0] == '%' {
			return fmt.Errorf("uses %q in line %d: tags and directives are not accepted; remove it", "%", line)
		}
		for _, r := range string(text) {
			switch {
			case r == '\n', r == ',', r == ':', r == '-', r == '[', r == '{', r == '?':
				values++
			case isControl(r):
				return fmt.Errorf("holds the control character %U in line %d; remove it", r, line)
			}
		}
	}
	if values > maxValues {
		return fmt.Errorf("holds more than %d names and values (got %d); split the rules or shorten them", maxValues, values)
	}
	return nil
}

// isControl finds what could steer the terminal of whoever looks at a document, and
// what YAML, unlike an editor, takes for the end of a line.
func isControl(r rune) bool {
	return (unicode.IsControl(r) || r == '\u2028' || r == '\u2029') && r != '\n' && r != '\r' && r != '\t'
}

// lines hands out a document line by line, so that there are rests between, and that
// a parser which stops has not read far beyond what stopped it.
type lines struct {
	data []byte
	at   int
	rest func()
}

func (l *lines) Read(p []byte) (int, error) {
	if l.at == len(l.data) {
		return 0, io.EOF
	}
	l.rest()
	left := l.data[l.at:]
	if end := bytes.IndexByte(left, '\n') + 1; end > 0 {
		left = left[:end]
	}
	n := copy(p, left)
	l.at += n
	return n, nil
}

// reached returns the line of the last character handed out.
func (l *lines) reached() int {
	return 1 + bytes.Count(l.data[:max(l.at-1, 0)], []byte("\n"))
}

func tooDeep() error { return fmt.Errorf("is nested more than %d deep", maxDepth) }

func fromJSON(dec *json.Decoder, depth int) (tree, error) {
	if depth > maxDepth {
		return tree{}, tooDeep()
	}
	tok, err := dec.Token()
	if err != nil {
		return tree{}, err
	}
	switch v := tok.(type) {
	case bool:
		return tree{kind: boolKind, text: fmt.Sprint(v)}, nil
	case json.Number:
		return tree{kind: numberKind, text: v.String()}, nil
	case string:
		return tree{kind: stringKind, text: v}, nil
	case json.Delim:
		t := tree{kind: listKind}
		if v == '{' {
			t.kind = mapKind
		}
		for dec.More() {
			if t.kind == mapKind {
				name, err := dec.Token()
				if err != nil {
					return tree{}, err
				}
				t.names = append(t.names, fmt.Sprint(name))
			}
			item, err := fromJSON(dec, depth+1)
			if err != nil {
				return tree{}, err
			}
			t.items = append(t.items, item)
		}
		_, err = dec.Token() // the closing bracket
		return t, err
	}
	return tree{}, nil // null
}

func fromYAML(source *lines) (t tree, err error) {
	// A fault of the YAML library must refuse the document, not stop the edge.
	defer func() {
		if r := recover(); r != nil {
			t, err = tree{}, fmt.Errorf("is not valid YAML: %v", r)
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
			return tree{}, syntax(err, source.reached())
		}
		if body := doc.Content[0]; body.Tag != "!!null" {
			bodies = append(bodies, body)
		}
	}
	switch len(bodies) {
	case 0:
		return tree{}, errEmpty
	case 1:
		return fromNode(bodies[0], 0, source.rest)
	}
	return tree{}, fmt.Errorf("holds %d YAML documents; keep one", len(bodies))
}

// syntax says what is wrong with a document, and where. The library gives the line of
// a character, unless it is the first; of a structure it gives where that began, which
// may be the list of all rules, so that the line reached says more.
func syntax(err error, reached int) error {
	where, what := fmt.Sprintf("by line %d", reached), strings.TrimPrefix(err.Error(), "yaml: ")
	if line, rest, found := strings.Cut(what, ": "); found && strings.HasPrefix(line, "line ") {
		what = rest
		if !strings.HasPrefix(what, "did not find expected") {
			where = "in " + line
		}
	}
	switch {
	case strings.HasPrefix(what, "exceeded max depth"):
		return tooDeep()
	case strings.HasPrefix(what, "unknown anchor"), strings.HasSuffix(what, "alphabetic or numeric character"):
		return noAlias("*", where)
	case strings.HasSuffix(what, "cannot start any token"):
		what += "; indent with spaces instead of tabs, and put values that begin with @ or ` in quotes"
	}
	return fmt.Errorf("is not valid YAML %s: %s", where, what)
}

// noAlias refuses what can multiply a small document into a huge one.
func noAlias(sign, where string) error {
	return fmt.Errorf("uses %q %s: anchors, aliases and merges are not accepted; write the values out, or put quotes around them", sign, where)
}

func fromNode(n *yaml.Node, depth int, rest func()) (tree, error) {
	if err := surprising(n); err != nil {
		return tree{}, err
	}
	if depth > maxDepth {
		return tree{}, tooDeep()
	}
	if n.Kind == yaml.ScalarNode {
		return tree{kind: scalarKind(n.Tag), text: n.Value}, nil
	}
	t := tree{kind: listKind, items: make([]tree, 0, len(n.Content))}
	if n.Kind == yaml.MappingNode {
		t.kind = mapKind
	}
	for i, child := range n.Content {
		rest()
		if t.kind == mapKind && i%2 == 0 {
			// A block map begins at its first name, unless that comes after a "?".
			if child.Kind != yaml.ScalarNode || n.Style&yaml.FlowStyle == 0 && child.Column != n.Column {
				return tree{}, fmt.Errorf("uses %q in line %d: only plain names can be keys", "?", child.Line)
			}
			if err := surprising(child); err != nil {
				return tree{}, err
			}
			t.names = append(t.names, child.Value)
			continue
		}
		item, err := fromNode(child, depth+1, rest)
		if err != nil {
			return tree{}, err
		}
		t.items = append(t.items, item)
	}
	return t, nil
}

// surprising refuses what readers of YAML understand differently, or not at all.
func surprising(n *yaml.Node) error {
	where := func() string { return fmt.Sprintf("in line %d", n.Line) }
	switch {
	case n.Anchor != "":
		return noAlias("&", where())
	case n.Kind == yaml.AliasNode:
		return noAlias("*", where())
	case n.Tag == "!!merge":
		return noAlias("<<", where())
	case n.Style&yaml.TaggedStyle != 0:
		return fmt.Errorf("uses %q %s: tags and directives are not accepted; remove it", n.Tag, where())
	}
	return nil
}

func scalarKind(tag string) kind {
	switch tag {
	case "!!null":
		return nullKind
	case "!!bool":
		return boolKind
	case "!!int", "!!float":
		return numberKind
	}
	return stringKind // dates too
}
