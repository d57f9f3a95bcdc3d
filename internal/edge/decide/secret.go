package decide

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"slices"
)

// Secret hides which users the shedder sheds. Without it their places follow from public
// constants, so that a client with many addresses could compute which of them pass.
// One Secret gives the same places on every node. A nil Secret hides nothing.
type Secret struct{ block cipher.Block }

// NewSecret makes a Secret of 32 bytes, nil of none.
func NewSecret(key []byte) *Secret {
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil
	}
	return &Secret{block}
}

// RandomSecret makes a Secret that only this process knows.
func RandomSecret() *Secret {
	key := make([]byte, 32)
	_, _ = rand.Read(key) // never fails
	return NewSecret(key)
}

// Fingerprint returns 16 bits by which nodes can be compared, and which help nobody to guess.
func (s *Secret) Fingerprint() string {
	if s == nil {
		return "none"
	}
	out := slices.Repeat([]byte{0xff}, aes.BlockSize) // never a user, whose block ends with zeros
	s.block.Encrypt(out, out)
	return fmt.Sprintf("%x", out[:2])
}

// hide returns the user that the shedder sees for a hash. buf is overwritten.
func (s *Secret) hide(user uint64, buf []byte) (hidden uint64, grown []byte) {
	if s == nil {
		return user, buf
	}
	buf = binary.BigEndian.AppendUint64(buf[:0], user)
	buf = binary.BigEndian.AppendUint64(buf, 0)
	s.block.Encrypt(buf, buf)
	return binary.BigEndian.Uint64(buf), buf
}
