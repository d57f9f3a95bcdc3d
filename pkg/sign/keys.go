package sign

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"
)

// Key signs documents.
type Key struct {
	private ed25519.PrivateKey
	id      string
}

// ID returns the ID of the public key.
func (k *Key) ID() string { return k.id }

// Public returns the public key as Keys.Add takes it.
func (k *Key) Public() string {
	der, _ := x509.MarshalPKIXPublicKey(k.private.Public()) // fails only for other kinds of keys
	return base64.StdEncoding.EncodeToString(der)
}

// Sign signs a subject: with until, only for pointers that expire by then; otherwise for
// all.
func (k *Key) Sign(s Subject, until *time.Time) Signature {
	if until != nil {
		at := until.UTC().Round(0)
		until = &at
	}
	return Signature{Key: k.id, Until: until, Value: ed25519.Sign(k.private, s.text(until))}
}

// identify returns the ID of a public key: the beginning of the SHA-256 of its PKIX form.
func identify(key ed25519.PublicKey) (string, error) {
	der, err := x509.MarshalPKIXPublicKey(key)
	sum := sha256.Sum256(der)
	return hex.EncodeToString(sum[:8]), err
}

const (
	privateBlock = "PRIVATE KEY"
	publicBlock  = "PUBLIC KEY"
	// maxKeyFile is in bytes.
	maxKeyFile = 64 << 10
)

// Generate writes a new key to a file that only its owner can read, and its public key to
// another. It never overwrites a file.
func Generate(private, public string) (id string, err error) {
	key, secret, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return "", err
	}
	if id, err = identify(key); err != nil {
		return "", err
	}
	secretDER, err := x509.MarshalPKCS8PrivateKey(secret)
	if err != nil {
		return "", err
	}
	publicDER, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		return "", err
	}
	if err := create(private, 0o600, &pem.Block{Type: privateBlock, Bytes: secretDER}); err != nil {
		return "", err
	}
	if err := create(public, 0o644, &pem.Block{Type: publicBlock, Bytes: publicDER}); err != nil {
		return "", errors.Join(err, os.Remove(private))
	}
	return id, nil
}

// create writes a file that does not exist yet.
func create(name string, mode os.FileMode, block *pem.Block) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	err = pem.Encode(f, block)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return errors.Join(err, os.Remove(name))
	}
	return nil
}

// read returns the content of a regular file, without waiting for a pipe's writer.
func read(name string) ([]byte, os.FileInfo, error) {
	f, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, nil, fmt.Errorf("%s is not a regular file; name another", name)
	}
	text, err := io.ReadAll(io.LimitReader(f, maxKeyFile))
	return text, info, err
}

// ReadKey reads a signing key, which only its owner may be able to read; or its group, if the owner
// is another user.
func ReadKey(name string) (*Key, error) {
	text, info, err := read(name)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(text)
	if block != nil && block.Type == publicBlock {
		return nil, fmt.Errorf("%s holds a public key; name the private one, from which it was made", name)
	}
	owner := os.Getuid()
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		owner = int(stat.Uid)
	}
	if mode, most := info.Mode().Perm(), keyMode(owner, os.Getuid()); mode&0o077&^most != 0 {
		return nil, fmt.Errorf("%s is accessible to other users (mode %04o); run chmod %o %s, and replace the key if others may have read it", name, mode, most, name)
	}
	if block == nil || block.Type != privateBlock {
		return nil, fmt.Errorf("%s holds no PEM block %q; make a key with regionctl keys generate, or openssl genpkey -algorithm ed25519", name, privateBlock)
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("%s: %w; an encrypted key must be decrypted first", name, err)
	}
	private, ok := parsed.(ed25519.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("%s holds a key of another algorithm than Ed25519; make one with regionctl keys generate", name)
	}
	id, err := identify(private.Public().(ed25519.PublicKey))
	return &Key{private, id}, err
}

// keyMode is the most that the mode of a key's file may allow.
func keyMode(owner, reader int) os.FileMode {
	if owner == reader {
		return 0o600
	}
	return 0o640 // somebody else, such as root, gives a service its key by its group
}

// ReadPublic reads the public keys in the named files, each of which may hold several.
func ReadPublic(names []string) (Keys, error) {
	keys := Keys{}
	for _, name := range names {
		text, _, err := read(name)
		if err != nil {
			return nil, err
		}
		found := false
		for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
			if block.Type != publicBlock {
				return nil, fmt.Errorf("%s holds a PEM block %q; it must hold public keys only, as the .pub file of regionctl keys generate, or that of openssl pkey -pubout", name, block.Type)
			}
			if _, err := keys.add(block.Bytes); err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			found = true
		}
		if !found {
			return nil, fmt.Errorf("%s holds no PEM block %q; write the public key into it", name, publicBlock)
		}
	}
	return keys, nil
}

// Add adds the public key in a line of base64: what a PEM file has between its first and last
// line.
func (k Keys) Add(line string) (id string, err error) {
	der, err := base64.StdEncoding.DecodeString(line)
	if err != nil {
		return "", err
	}
	return k.add(der)
}

func (k Keys) add(der []byte) (id string, err error) {
	parsed, err := x509.ParsePKIXPublicKey(der)
	if err != nil {
		return "", err
	}
	key, ok := parsed.(ed25519.PublicKey)
	if !ok {
		return "", errors.New("is a key of another algorithm than Ed25519; make one with regionctl keys generate")
	}
	if id, err = identify(key); err == nil {
		k[id] = key
	}
	return id, err
}
