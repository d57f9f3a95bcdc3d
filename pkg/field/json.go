package field

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// jsonReader reads a document that is known to be valid JSON.
type jsonReader struct {
	*json.Decoder
	data []byte
	at   int64 // of line
	line int32
}

func readJSON(source *lines) (Node, error) {
	r := &jsonReader{Decoder: json.NewDecoder(source), data: source.data, line: 1}
	r.UseNumber()
	return r.node(0)
}

// here returns the line of the last token.
func (r *jsonReader) here() int32 {
	to := r.InputOffset()
	r.line += int32(bytes.Count(r.data[r.at:to], []byte("\n")))
	r.at = to
	return r.line
}

func (r *jsonReader) node(depth int) (Node, error) {
	if depth > maxDepth {
		return Node{}, tooDeep(int(r.here()))
	}
	tok, err := r.Token()
	if err != nil {
		return Node{}, fault(0, "is not valid JSON: %v", err)
	}
	n := Node{line: r.here()}
	switch v := tok.(type) {
	case bool:
		n.Kind, n.Text = Bool, fmt.Sprint(v)
	case json.Number:
		n.Kind, n.Text = Number, v.String()
	case string:
		n.Kind, n.Text = Text, v
	case json.Delim:
		n.Kind = List
		if v == '{' {
			n.Kind = Map
		}
		for r.More() {
			line := int32(0)
			if n.Kind == Map {
				name, err := r.Token()
				if err != nil {
					return Node{}, fault(0, "is not valid JSON: %v", err)
				}
				n.Names, line = append(n.Names, fmt.Sprint(name)), r.here()
			}
			item, err := r.node(depth + 1)
			if err != nil {
				return Node{}, err
			}
			if line > 0 {
				item.line = line
			}
			n.Items = append(n.Items, item)
		}
		_, _ = r.Token() // the closing bracket
	}
	return n, nil
}

// jsonNumber reports whether a YAML number is also one in JSON: other readers may take
// 010 or 1_000 for a different number.
func jsonNumber(text string) bool { return json.Valid([]byte(text)) }
