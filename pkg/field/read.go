package field

import (
	"bytes"
	"cmp"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Form is the permitted form of one kind of document.
type Form struct {
	MaxBytes int    // 0: bounded only by the number of values
	Shorten  string // how to get below MaxBytes: "split the rules or shorten them"
	Empty    string // what to write in an empty document: "write rules: [] for no rules"
	// Lenient is for local files, which have always been read this way: a field without a
	// value counts as absent, and a number is accepted as a string.
	Lenient bool
	// Aliases accepts anchors, aliases and merge keys, within maxValues.
	Aliases bool
	// Exponents accepts a whole number written as 1e3 or 5.0.
	Exponents bool
	// Later ignores unknown fields, which a later program may have written.
	Later bool
}

const (
	// maxDepth is far beyond what any schema needs, and keeps a hostile document from
	// exhausting the stack.
	maxDepth = 16
	// maxValues bounds names and values, which determine the YAML parser's memory.
	maxValues = 500_000
)

// Node is a value of a document before interpretation.
type Node struct {
	Kind  Kind
	line  int32
	Text  string   // scalars, as written
	Names []string // maps: the name of Items[i]; duplicates are kept
	Items []Node   // maps and lists
}

// Kind is what a Node is.
type Kind uint8

// The kinds.
const (
	Null Kind = iota
	Bool
	Number
	Text
	List
	Map
)

func (k Kind) String() string {
	return [...]string{"nothing", "a boolean", "a number", "a string", "a list", "a map"}[k]
}

// String describes the value for a message.
func (n *Node) String() string {
	switch n.Kind {
	case Bool, Number:
		return n.Text
	case Text:
		return Shown(n.Text)
	}
	return n.Kind.String()
}

// Read returns the tree of a YAML or JSON document. Its error is an *Error.
func Read(data []byte, form *Form) (*Node, error) {
	if form.MaxBytes > 0 && len(data) > form.MaxBytes {
		return nil, fault(0, "is larger than %d bytes (got %d); %s", form.MaxBytes, len(data), cmp.Or(form.Shorten, "shorten it"))
	}
	if !utf8.Valid(data) {
		return nil, fault(0, "is not valid UTF-8; save it as UTF-8")
	}
	if err := plain(data, form); err != nil {
		return nil, err
	}
	source := &lines{data: data, form: form}
	var root Node
	var err error
	// YAML is nearly a superset of JSON: tabs and escaped slashes differ.
	if json.Valid(data) {
		root, err = readJSON(source)
	} else {
		root, err = readYAML(source)
	}
	if err == nil && root.Kind == Null {
		err = fault(0, "is empty; %s", form.Empty)
	}
	if err != nil {
		return nil, err
	}
	return &root, nil
}

// fault returns a fault of the whole document. A document that cannot be parsed has no
// paths, so the message names the line.
func fault(line int, format string, args ...any) *Error {
	var list Errors
	list.Add("", format, args...)
	list[0].Line = line
	return list[0]
}

// plain rejects what the characters alone reveal. A YAML node takes a hundred times the
// memory of its text, so nodes are counted before parsing, by the punctuation that each
// needs.
func plain(data []byte, form *Form) error {
	line, values := 0, 0
	for text := range bytes.Lines(data) {
		line++
		if text[0] == '%' {
			return fault(line, "uses %q in line %d: tags and directives are not accepted; remove it", "%", line)
		}
		for _, r := range string(text) {
			switch {
			case r == '\n', r == ',', r == ':', r == '-', r == '[', r == '{', r == '?':
				values++
			case isControl(r):
				return fault(line, "contains the control character %U in line %d; remove it", r, line)
			}
		}
	}
	if values > maxValues {
		return fault(0, "contains more than %d names and values (got %d); %s", maxValues, values, cmp.Or(form.Shorten, "shorten it"))
	}
	return nil
}

// isControl reports characters that could control the terminal of a person who views a
// document, and those that YAML, unlike an editor, treats as line breaks.
func isControl(r rune) bool {
	return (unicode.IsControl(r) || r == '\u2028' || r == '\u2029') && r != '\n' && r != '\r' && r != '\t'
}

// Locate sets the lines of faults whose paths lead into the document, and sorts the faults by
// line. An absent field gets the line where it belongs. Faults without a line come last.
func (n *Node) Locate(list Errors) Errors {
	for _, e := range list {
		if e.Line == 0 {
			e.Line = n.lineOf(e.Path)
		}
	}
	slices.SortStableFunc(list, func(a, b *Error) int {
		return cmp.Compare(uint(a.Line)-1, uint(b.Line)-1) // without a line: the greatest
	})
	return list
}

// lineOf returns the line of the innermost value on the way to path, or 0.
func (n *Node) lineOf(path string) (line int) {
	for path != "" {
		next, rest := n.step(path)
		if next == nil {
			return line
		}
		n, path, line = next, strings.TrimPrefix(rest, "."), int(next.line)
	}
	return line
}

// step returns the item that path begins with, and the rest of the path. A name may
// contain dots, so the longest match wins.
func (n *Node) step(path string) (next *Node, rest string) {
	if index, after, ok := strings.Cut(path, "]"); ok && index[0] == '[' && n.Kind == List {
		if i, err := strconv.Atoi(index[1:]); err == nil && i >= 0 && i < len(n.Items) {
			return &n.Items[i], after
		}
		return nil, ""
	}
	longest := -1
	for i, name := range n.Names {
		name = Name(name)
		if after, ok := strings.CutPrefix(path, name); ok && len(name) > longest && (after == "" || after[0] == '.' || after[0] == '[') {
			next, rest, longest = &n.Items[i], after, len(name)
		}
	}
	return next, rest
}
