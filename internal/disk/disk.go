// Package disk replaces files atomically, so that a complete one exists at any instant,
// and reads them back.
package disk

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
)

// Replace writes a file that only its owner can read, and creates its folder if needed.
// Even after a power loss, the file is either the previous or the new one.
func Replace(file string, data []byte) error {
	folder := filepath.Dir(file)
	if err := os.MkdirAll(folder, 0o750); err != nil {
		return err
	}
	next := file + ".next"
	if err := os.Remove(next); err != nil && !errors.Is(err, os.ErrNotExist) { // left by a process that died
		return err
	}
	f, err := os.OpenFile(next, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(next, file)
	}
	if err != nil {
		_ = os.Remove(next) // the earlier error matters
		return err
	}
	d, err := os.Open(folder)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// Read returns at most the first max bytes of a file. It never waits, as it would for the
// writer of a pipe.
func Read(file string, max int64) ([]byte, error) {
	f, err := os.OpenFile(file, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file; remove it or name another", file)
	}
	// One allocation is enough, also for a large file.
	b := bytes.NewBuffer(make([]byte, 0, min(info.Size(), max)+bytes.MinRead))
	_, err = b.ReadFrom(io.LimitReader(f, max))
	return b.Bytes(), err
}

// shortestSecret is in bytes.
const shortestSecret = 16

// Secret returns the SHA-256 of the secret in a file, without the spaces around it.
func Secret(file string) ([]byte, error) {
	text, err := Read(file, 1<<16)
	if err != nil {
		return nil, err
	}
	if text = bytes.TrimSpace(text); len(text) < shortestSecret {
		return nil, fmt.Errorf("%s must hold a secret of at least %d bytes, as of: openssl rand -hex 32 (got %d)", file, shortestSecret, len(text))
	}
	key := sha256.Sum256(text)
	return key[:], nil
}
