package clientlist

import (
	"encoding/json"
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

// Index names the current chunks. It is also the pointer's value, so both change in one step:
// nodes follow it, and the history records it like any pointer.
type Index struct {
	consul.Pointer // its version identifies the contents below
	contents
}

type contents struct {
	Schema int             `json:"schema"`
	Chunks map[string]part `json:"chunks"` // by number, as in the key: 00 to ff; empty ones are absent
}

// part is the index's entry for a chunk.
type part struct {
	Entries int    `json:"entries"`
	Hash    string `json:"hash"`
}

func partName(number int) string { return fmt.Sprintf("%02x", number) }

// Count returns the number of entries, including expired ones.
func (x *Index) Count() (n int) {
	for _, c := range x.Chunks {
		n += c.Entries
	}
	return n
}

// newIndex returns the index of these contents.
func newIndex(c contents, by string, at time.Time) (*Index, error) {
	document, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	return &Index{consul.NewPointer(document, by, at), c}, nil
}

// damaged says how to repair an index.
func damaged(err error) error {
	return fmt.Errorf("%w; delete the key, and import what regionctl clients export prints of another region", err)
}

// ParseIndex reads an index. It refuses a damaged one.
func ParseIndex(value []byte) (*Index, error) {
	x := &Index{}
	var err error
	if x.Pointer, err = consul.ParsePointer(value); err != nil {
		return nil, damaged(err)
	}
	if err := json.Unmarshal(value, &x.contents); err != nil {
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
	if same, err := newIndex(x.contents, x.AppliedBy, x.AppliedAt); err != nil || same.SHA256 != x.SHA256 {
		return nil, damaged(&field.Error{Path: "sha256", Msg: "is not that of schema and chunks: they were changed by hand"})
	}
	return x, nil
}
