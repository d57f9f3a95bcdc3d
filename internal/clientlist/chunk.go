package clientlist

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"

	"github.com/cespare/xxhash/v2"

	"github.com/weir-edge/weir/pkg/region/consul"
)

const (
	// chunks is the number of chunks. With Max networks that have the longest texts, each has
	// at most 250 kB; Consul accepts 512 kB.
	chunks = 256
	// maxChunk bounds a chunk's value.
	maxChunk = 340 << 10
)

// Chunk holds the entries whose networks hash to its number.
type Chunk struct {
	hash    string // of its document
	entries []*Entry
}

// chunkOf returns the number of a network's chunk. All releases must agree on it.
func chunkOf(p netip.Prefix) int { return int(xxhash.Sum64String(p.String()) % chunks) }

// chunkText is a stored chunk. Imports give many networks the same decision, so it stores each
// once.
type chunkText struct {
	Decisions []decided `json:"decisions"`
}

type decided struct {
	Decision
	Networks []netip.Prefix `json:"networks"`
}

// newChunk returns a chunk and its stored form; nil without entries.
func newChunk(entries []*Entry) (*Chunk, []byte, error) {
	if len(entries) == 0 {
		return nil, nil, nil
	}
	document, err := encode(entries)
	if err != nil {
		return nil, nil, err
	}
	stored, err := consul.Encode(document)
	if err == nil && len(stored) > maxChunk {
		err = fmt.Errorf("%d of the networks are in one chunk, which is too long; remove some, or give shorter reasons", len(entries))
	}
	return &Chunk{hashOf(document), entries}, stored, err
}

// encode returns the document of a chunk. It sorts the entries, so equal entries give equal
// documents.
func encode(entries []*Entry) ([]byte, error) {
	slices.SortFunc(entries, func(a, b *Entry) int {
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Action, b.Action), cmp.Compare(a.By, b.By), cmp.Compare(a.Reason, b.Reason),
			a.Until.Compare(b.Until), Compare(a.Network, b.Network))
	})
	var text chunkText
	for _, e := range entries {
		if n := len(text.Decisions); n == 0 || text.Decisions[n-1].Decision != e.Decision {
			text.Decisions = append(text.Decisions, decided{Decision: e.Decision})
		}
		last := &text.Decisions[len(text.Decisions)-1]
		last.Networks = append(last.Networks, e.Network)
	}
	return json.Marshal(text)
}

func hashOf(document []byte) string {
	sum := sha256.Sum256(document)
	return hex.EncodeToString(sum[:16])
}

// parseChunk reads a stored chunk. It refuses a chunk with any fault.
func parseChunk(number int, document []byte) (*Chunk, error) {
	var text chunkText
	if err := json.Unmarshal(document, &text); err != nil {
		return nil, err
	}
	c := &Chunk{hash: hashOf(document)}
	seen := map[netip.Prefix]bool{}
	for i := range text.Decisions {
		d := &text.Decisions[i]
		if err := d.validate(); err != nil {
			return nil, fmt.Errorf("decisions[%d].%w", i, err)
		}
		for _, p := range d.Networks {
			switch {
			case !p.IsValid() || p != p.Masked() || p.Addr().Is4In6() || chunkOf(p) != number:
				return nil, fmt.Errorf("decisions[%d].networks: %s does not belong here", i, p)
			case seen[p]:
				return nil, fmt.Errorf("decisions[%d].networks: %s occurs twice", i, p)
			}
			seen[p] = true
			c.entries = append(c.entries, &Entry{p, d.Decision})
		}
	}
	return c, nil
}
