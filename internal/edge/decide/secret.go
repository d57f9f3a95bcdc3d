package decide

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/cespare/xxhash/v2"
	"github.com/dchest/siphash"
)

// Secret hides which users the shedder sheds. Without it, public constants determine their
// places, so that a client with many addresses could compute which of them pass, and one
// that chooses its user name could choose many with the same place. One Secret gives the
// same places on every node. A nil Secret hides nothing.
type Secret struct {
	block  cipher.Block
	k0, k1 uint64 // SipHash's key
}

// NewSecret makes a Secret from 32 bytes; it returns nil for none.
func NewSecret(key []byte) *Secret {
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil
	}
	sip := make([]byte, aes.BlockSize) // another block than Fingerprint's
	block.Encrypt(sip, sip)
	return &Secret{block, binary.LittleEndian.Uint64(sip), binary.LittleEndian.Uint64(sip[8:])}
}

// RandomSecret makes a Secret that only this process knows.
func RandomSecret() *Secret {
	key := make([]byte, 32)
	_, _ = rand.Read(key) // never fails
	return NewSecret(key)
}

// Fingerprint returns 16 bits for comparing nodes, too few to help anyone guess.
func (s *Secret) Fingerprint() string {
	if s == nil {
		return "none"
	}
	out := slices.Repeat([]byte{0xff}, aes.BlockSize)
	s.block.Encrypt(out, out)
	return fmt.Sprintf("%x", out[:2])
}

// hash returns where the shedder puts a user. The hash is keyed, so that no one without
// the secret can find two names with the same place.
func (s *Secret) hash(user []byte) uint64 {
	if s == nil {
		return xxhash.Sum64(user)
	}
	return siphash.Hash(s.k0, s.k1, user)
}
