package clientlist

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/weir-edge/weir/pkg/region/consul"
)

// saved is a list as stored in a file. The pointer's and the index's hashes prove its integrity.
type saved struct {
	Pointer consul.Pointer             `json:"pointer"`
	Index   json.RawMessage            `json:"index"`
	Chunks  map[string]json.RawMessage `json:"chunks"`
}

func (l *List) MarshalJSON() ([]byte, error) {
	index, err := l.Index.document()
	if err != nil {
		return nil, err
	}
	s := saved{l.Index.Pointer, index, map[string]json.RawMessage{}}
	for number, c := range l.chunks {
		if c == nil {
			continue
		}
		document, err := encode(slices.Clone(c.entries))
		if err != nil {
			return nil, err
		}
		s.Chunks[partName(number)] = document
	}
	return json.Marshal(s)
}

// UnmarshalJSON refuses a list that MarshalJSON did not write.
func (l *List) UnmarshalJSON(data []byte) error {
	var s saved
	if err := json.Unmarshal(data, &s); err != nil {
		return err
	}
	x, err := ParseIndex(s.Index)
	if err != nil {
		return fmt.Errorf("index: %w", err)
	}
	if x.SHA256 != s.Pointer.SHA256 {
		return errors.New("index: is not the one that the pointer names")
	}
	x.Pointer = s.Pointer
	*l = List{Index: x}
	for number := range chunks {
		want, is := x.Chunks[partName(number)]
		if !is {
			continue
		}
		document := s.Chunks[partName(number)]
		if hashOf(document) != want.Hash {
			return fmt.Errorf("chunks: %s is not the one that the index names", partName(number))
		}
		if l.chunks[number], err = parseChunk(number, document); err != nil {
			return fmt.Errorf("chunks: %s: %w", partName(number), err)
		}
	}
	return nil
}
