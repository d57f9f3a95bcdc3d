package clientlist

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/weir-edge/weir/pkg/field"
	"github.com/weir-edge/weir/pkg/region/consul"
)

const (
	// Kind is the networks' folder in Consul and their name in the history.
	Kind = "clients"
	// Schema is the schema that this release reads and writes.
	Schema = 1
)

// Index names the chunks of a list. Its contents are a document: the pointer names it, and the
// history records it like any other.
type Index struct {
	consul.Pointer // its version identifies the contents below
	contents
}

type contents struct {
	Schema int `json:"schema"`
	// Change makes each index unique: an edit that was overtaken removes those that it replaced.
	Change string          `json:"change,omitempty"`
	Chunks map[string]part `json:"chunks"` // by number: 00 to ff; empty ones are absent
}

// part is the index's entry for a chunk.
type part struct {
	Entries int    `json:"entries"`
	Hash    string `json:"hash"`
	// Name is the end of the chunk's key: no edit touches the chunks of another index.
	Name string `json:"name"`
}

func partName(number int) string { return fmt.Sprintf("%02x", number) }

// Count returns the number of entries, including expired ones.
func (x *Index) Count() (n int) {
	for _, c := range x.Chunks {
		n += c.Entries
	}
	return n
}

// document returns the document of these contents.
func (c *contents) document() ([]byte, error) { return json.Marshal(c) }

// damaged says how to repair an index.
func damaged(err error) error {
	return fmt.Errorf("%w; delete the key, and import what regionctl clients export prints of another region", err)
}

// ParseIndex reads the document of an index. It refuses a damaged one.
func ParseIndex(document []byte) (*Index, error) {
	x := &Index{Pointer: consul.NewPointer(document, "", time.Time{})}
	if err := json.Unmarshal(document, &x.contents); err != nil {
		return nil, damaged(err)
	}
	if x.Schema < 1 || x.Schema > Schema {
		return nil, &field.Error{Path: "schema", Msg: fmt.Sprintf("must be at most %d, which this release reads (got %d); update it", Schema, x.Schema)}
	}
	for name, c := range x.Chunks {
		var number int
		if _, err := fmt.Sscanf(name, "%02x", &number); err != nil || partName(number) != name || number >= chunks || c.Entries < 1 || c.Entries > Max {
			return nil, damaged(&field.Error{Path: "chunks", Msg: fmt.Sprintf("%.20q: is no chunk", name)})
		}
	}
	if n := x.Count(); n > Max {
		return nil, damaged(&field.Error{Path: "chunks", Msg: fmt.Sprintf("must have at most %d networks (got %d)", Max, n)})
	}
	return x, nil
}

// LoadIndex reads the index that a pointer names. Its error is ErrMismatch if that was replaced twice
// in the meantime.
func LoadIndex(ctx context.Context, c *consul.Client, p consul.Pointer) (*Index, error) {
	document, err := c.Documents(Kind).Load(ctx, p)
	if errors.Is(err, consul.ErrMissing) {
		return nil, fmt.Errorf("%w: %w", err, ErrMismatch)
	}
	if err != nil {
		return nil, err
	}
	x, err := ParseIndex(document)
	if err != nil {
		return nil, fmt.Errorf("%s: version %s: %w", Kind, p.Version, err)
	}
	x.Pointer = p
	return x, nil
}
