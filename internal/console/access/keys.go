package access

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
)

// keyring encrypts and authenticates cookies. The first key seals, and every key opens, so
// replacing the first ends no session while the old key is listed.
type keyring struct {
	files []string
	keys  atomic.Pointer[[]cipher.AEAD]
}

// leastKey is the shortest key file in bytes. openssl rand -hex 32 prints more.
const leastKey = 32

// reload reads the files. If one is bad, the old keys stay.
func (k *keyring) reload() error {
	var keys []cipher.AEAD
	for i, file := range k.files {
		text, err := os.ReadFile(file)
		if err != nil {
			return fmt.Errorf("session.key_files[%d]: %w", i, err)
		}
		text = bytes.TrimSpace(text)
		if len(text) < leastKey {
			return fmt.Errorf("session.key_files[%d]: %s must have %d random bytes or more; write it with openssl rand -hex 32 (got %d)", i, file, leastKey, len(text))
		}
		sealing, err := hkdf.Key(sha256.New, text, nil, "weir console cookies 1", 32)
		if err != nil {
			return err
		}
		block, err := aes.NewCipher(sealing)
		if err != nil {
			return err
		}
		key, err := cipher.NewGCMWithRandomNonce(block)
		if err != nil {
			return err
		}
		keys = append(keys, key)
	}
	k.keys.Store(&keys)
	return nil
}

// seal returns v as the value of the cookie with this name; open refuses it under any other.
func (k *keyring) seal(name string, v any) (string, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return "", err
	}
	return base64.RawURLEncoding.EncodeToString((*k.keys.Load())[0].Seal(nil, nil, text, []byte(name))), nil
}

// open decodes a value that seal wrote under this name.
func (k *keyring) open(name, value string, v any) error {
	sealed, err := base64.RawURLEncoding.Strict().DecodeString(value)
	if err != nil {
		return err
	}
	for _, key := range *k.keys.Load() {
		if text, err := key.Open(nil, nil, sealed, []byte(name)); err == nil {
			return json.Unmarshal(text, v)
		}
	}
	return errors.New("no key of this console sealed it")
}
