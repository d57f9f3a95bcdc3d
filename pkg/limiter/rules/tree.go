package rules

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"unicode"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
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

// Far beyond what the schema needs, these keep a hostile document from exhausting
// the stack, and from the YAML parser's weak spot: its time grows with the square
// of the fields in one map.
const (
	maxDepth  = 16
	maxFields = 512
)

var errEmpty = errors.New("is empty; write rules: [] for no rules")

// read returns the tree of a YAML or JSON document.
func read(data []byte) (tree, error) {
	switch {
	case len(data) > MaxBytes:
		return tree{}, fmt.Errorf("is larger than %d bytes (got %d); split the rules or shorten them", MaxBytes, len(data))
	case !utf8.Valid(data):
		return tree{}, errors.New("is not valid UTF-8")
	case bytes.IndexFunc(data, isControl) >= 0:
		at := bytes.IndexFunc(data, isControl)
		r, _ := utf8.DecodeRune(data[at:])
		return tree{}, fmt.Errorf("holds the control character %U in line %d; remove it", r, 1+bytes.Count(data[:at], []byte("\n")))
	case len(bytes.TrimSpace(data)) == 0:
		return tree{}, errEmpty
	case json.Valid(data):
		// YAML is nearly a superset of JSON: tabs and escaped slashes differ.
		dec := json.NewDecoder(bytes.NewReader(data))
		dec.UseNumber()
		return fromJSON(dec, 0)
	}
	return fromYAML(string(data))
}

// isControl finds what could steer the terminal of whoever looks at a document.
func isControl(r rune) bool { return unicode.IsControl(r) && r != '\n' && r != '\r' && r != '\t' }

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

func fromYAML(src string) (t tree, err error) {
	// A fault of the YAML library must refuse the document, not stop the edge.
	defer func() {
		if r := recover(); r != nil {
			t, err = tree{}, fmt.Errorf("is not valid YAML: %v", r)
		}
	}()
	tokens := lexer.Tokenize(src)
	if len(tokens) > maxValues {
		return tree{}, fmt.Errorf("holds more than %d names and values (got %d); split the rules or shorten them", maxValues, len(tokens))
	}
	if err := plain(tokens); err != nil {
		return tree{}, err
	}
	file, err := parser.Parse(tokens, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		var syntax yaml.Error
		if errors.As(err, &syntax) && syntax.GetToken() != nil {
			return tree{}, fmt.Errorf("is not valid YAML: line %d: %s", syntax.GetToken().Position.Line, syntax.GetMessage())
		}
		return tree{}, fmt.Errorf("is not valid YAML: %w", err)
	}
	var bodies []ast.Node
	for _, doc := range file.Docs {
		if doc.Body != nil {
			bodies = append(bodies, doc.Body)
		}
	}
	switch len(bodies) {
	case 0:
		return tree{}, errEmpty
	case 1:
		return fromNode(bodies[0], 0)
	}
	return tree{}, fmt.Errorf("holds %d YAML documents; keep one", len(bodies))
}

// plain refuses what makes YAML unbounded or surprising: aliases can multiply a
// small document into a huge one, and nesting costs stack while it is parsed.
func plain(tokens token.Tokens) error {
	var maps fieldCounter
	depth, dashes := 0, 0
	for i, tk := range tokens {
		line := 0
		if tk.Position != nil {
			line = tk.Position.Line
		}
		if tk.Type != token.SequenceEntryType {
			dashes = 0
		}
		switch tk.Type {
		case token.AnchorType, token.AliasType, token.MergeKeyType:
			return fmt.Errorf("uses %q in line %d: anchors, aliases and merges are not accepted; write the values out", tk.Value, line)
		case token.TagType, token.DirectiveType:
			return fmt.Errorf("uses %q in line %d: tags and directives are not accepted; remove it", tk.Value, line)
		case token.MappingKeyType:
			return fmt.Errorf("uses %q in line %d: only plain names can be keys", tk.Value, line)
		case token.SequenceEntryType:
			dashes++
			if depth <= 0 {
				maps.leave(tk.Position.Column)
			}
		case token.SequenceStartType, token.MappingStartType:
			depth++
			maps = append(maps, fieldCount{column: maps.column() + 1, braces: tk.Type == token.MappingStartType})
		case token.SequenceEndType, token.MappingEndType:
			depth--
			maps.leave(maps.column() - 1)
		case token.CollectEntryType, token.MappingValueType:
			column := maps.column()
			switch {
			case tk.Type == token.CollectEntryType && !maps.braces():
				continue // a list may be long
			case depth <= 0 && i > 0:
				column = tokens[i-1].Position.Column
			}
			if maps.add(column) > maxFields {
				return fmt.Errorf("has more than %d fields in one map by line %d", maxFields, line)
			}
		}
		if depth > maxDepth || dashes > maxDepth {
			return tooDeep()
		}
	}
	return nil
}

// fieldCounter counts the fields of the maps that are open, outermost first. A
// block map is known by its column; one in braces counts as a column further in.
type fieldCounter []fieldCount

type fieldCount struct {
	column int
	braces bool
	n      int // colons, and the commas in braces, where a field needs no colon
}

func (c fieldCounter) column() int {
	if len(c) == 0 {
		return 0
	}
	return c[len(c)-1].column
}

func (c fieldCounter) braces() bool { return len(c) > 0 && c[len(c)-1].braces }

// leave forgets the maps that are further in than column.
func (c *fieldCounter) leave(column int) {
	for len(*c) > 0 && c.column() > column {
		*c = (*c)[:len(*c)-1]
	}
}

func (c *fieldCounter) add(column int) int {
	c.leave(column)
	if len(*c) == 0 || c.column() < column {
		*c = append(*c, fieldCount{column: column})
	}
	last := &(*c)[len(*c)-1]
	last.n++
	return last.n
}

func fromNode(n ast.Node, depth int) (tree, error) {
	if depth > maxDepth {
		return tree{}, tooDeep()
	}
	switch n := n.(type) {
	case *ast.NullNode:
		return tree{}, nil
	case *ast.BoolNode:
		return tree{kind: boolKind, text: n.Token.Value}, nil
	case *ast.IntegerNode:
		return tree{kind: numberKind, text: n.Token.Value}, nil
	case *ast.FloatNode, *ast.InfinityNode, *ast.NanNode:
		return tree{kind: numberKind, text: n.GetToken().Value}, nil
	case *ast.StringNode:
		return tree{kind: stringKind, text: n.Value}, nil
	case *ast.LiteralNode:
		return tree{kind: stringKind, text: n.Value.Value}, nil
	case *ast.SequenceNode:
		t := tree{kind: listKind}
		for _, v := range n.Values {
			item, err := fromNode(v, depth+1)
			if err != nil {
				return tree{}, err
			}
			t.items = append(t.items, item)
		}
		return t, nil
	case *ast.MappingValueNode:
		return fromPairs([]*ast.MappingValueNode{n}, depth)
	case *ast.MappingNode:
		return fromPairs(n.Values, depth)
	}
	if n == nil {
		return tree{}, io.ErrUnexpectedEOF
	}
	return tree{}, fmt.Errorf("has %q in line %d, which rules do not use; write plain YAML", n.Type(), n.GetToken().Position.Line)
}

func fromPairs(pairs []*ast.MappingValueNode, depth int) (tree, error) {
	t := tree{kind: mapKind}
	for _, pair := range pairs {
		item, err := fromNode(pair.Value, depth+1)
		if err != nil {
			return tree{}, err
		}
		t.names = append(t.names, pair.Key.GetToken().Value)
		t.items = append(t.items, item)
	}
	return t, nil
}
