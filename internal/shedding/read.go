package shedding

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"

	"go.yaml.in/yaml/v3" // its nodes keep places and duplicates, and expand no alias
)

// maxDepth is beyond what the schema needs, and keeps a hostile document from
// exhausting the stack.
const maxDepth = 16

var (
	errEmpty = errors.New("is empty; write {} for the defaults")
	errDepth = fmt.Errorf("is nested more than %d deep", maxDepth)
)

// read returns the tree of a YAML or JSON document.
func read(data []byte) (*yaml.Node, error) {
	if len(data) > MaxBytes {
		return nil, fmt.Errorf("is larger than %d bytes (got %d); shorten it", MaxBytes, len(data))
	}
	if !utf8.Valid(data) {
		return nil, errors.New("is not valid UTF-8")
	}
	for _, r := range string(data) {
		if unicode.IsControl(r) && r != '\n' && r != '\r' && r != '\t' || r == '\u2028' || r == '\u2029' {
			return nil, fmt.Errorf("holds the control character %U; remove it", r)
		}
	}
	if json.Valid(data) {
		data = asYAML(data)
	}
	return parse(data)
}

// asYAML writes JSON as the part of YAML that it nearly is: tabs and escaped slashes
// differ.
func asYAML(data []byte) []byte {
	var compact bytes.Buffer
	_ = json.Compact(&compact, data) // it is valid
	text := compact.Bytes()
	out := make([]byte, 0, len(text))
	inside := false
	for i := 0; i < len(text); i++ {
		c := text[i]
		switch {
		case c == '"':
			inside = !inside
		case c == '\\':
			i++
			if text[i] != '/' {
				out = append(out, c)
			}
			c = text[i]
		case !inside && (c == ':' || c == ','):
			out = append(out, c)
			c = ' ' // a name may be as long as it likes, but not touch its value
		}
		out = append(out, c)
	}
	return out
}

func parse(data []byte) (root *yaml.Node, err error) {
	// A fault of the YAML library must refuse the document, not stop the edge.
	defer func() {
		if r := recover(); r != nil {
			root, err = nil, fmt.Errorf("is not valid YAML: %v", r)
		}
	}()
	dec := yaml.NewDecoder(bytes.NewReader(data))
	for {
		var doc yaml.Node
		err := dec.Decode(&doc)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("is not valid YAML: %s", strings.TrimPrefix(err.Error(), "yaml: "))
		}
		if root != nil {
			return nil, errors.New("holds a second document; remove what follows --- or ...")
		}
		root = doc.Content[0]
	}
	if root == nil || root.Tag == "!!null" {
		return nil, errEmpty
	}
	return root, plain(root, 0)
}

// plain refuses what readers of YAML understand differently, and what makes a small
// document a huge one.
func plain(n *yaml.Node, depth int) error {
	switch {
	case depth > maxDepth:
		return errDepth
	case n.Anchor != "" || n.Kind == yaml.AliasNode || n.Tag == "!!merge":
		return fmt.Errorf("uses an anchor, an alias or a merge in line %d: write the values out", n.Line)
	case n.Style&yaml.TaggedStyle != 0:
		return fmt.Errorf("uses the tag %q in line %d; remove it", n.Tag, n.Line)
	}
	for i, child := range n.Content {
		if n.Kind == yaml.MappingNode && i%2 == 0 && child.Kind != yaml.ScalarNode {
			return fmt.Errorf("has a key in line %d that is no plain name", child.Line)
		}
		if err := plain(child, depth+1); err != nil {
			return err
		}
	}
	return nil
}
