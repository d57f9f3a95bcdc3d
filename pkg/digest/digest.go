// Package digest writes shortened SHA-256 sums without allocating.
package digest

import (
	"crypto/sha256"
	"encoding/hex"
	"hash"
	"sync"
)

// states pools hash states because sha256.Sum256 allocates one once a profile-guided build
// has inlined it.
var states = sync.Pool{New: func() any { return &state{Hash: sha256.New()} }}

type state struct {
	hash.Hash
	sum [sha256.Size]byte
}

// Append appends '~' and the first n bytes of the value's SHA-256 in hex. The value may lie
// in the spare capacity of dst.
func Append(dst, value []byte, n int) []byte {
	s := states.Get().(*state)
	defer states.Put(s)
	s.Reset()
	s.Write(value)
	return hex.AppendEncode(append(dst, '~'), s.Sum(s.sum[:0])[:n])
}
