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
	"strings"
	"syscall"
	"time"
)

// abandoned is how old an unfinished file is whose writer has died.
const abandoned = time.Hour

// Replace writes a file that only its owner can read, and creates its folder if needed.
// Even after a power loss, the file is either the previous or the new one; if several
// processes write it, it is that of one of them.
func Replace(file string, data []byte) error {
	folder, base := filepath.Dir(file), filepath.Base(file)
	if err := os.MkdirAll(folder, 0o750); err != nil {
		return err
	}
	sweep(folder, base)
	f, err := os.CreateTemp(folder, base+".next-*")
	if err != nil {
		return naming(file, err)
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), file)
	}
	if err != nil {
		_ = os.Remove(f.Name()) // the earlier error matters
		return naming(file, err)
	}
	d, err := os.Open(folder)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// naming returns an error with the name of the file: that of the unfinished one differs each
// time, and callers log only what is new.
func naming(file string, err error) error {
	var path *os.PathError
	var link *os.LinkError
	switch {
	case errors.As(err, &path):
		return &os.PathError{Op: path.Op, Path: file, Err: path.Err}
	case errors.As(err, &link):
		return &os.PathError{Op: link.Op, Path: file, Err: link.Err}
	}
	return err
}

// sweep removes what processes that died have left in a folder.
func sweep(folder, base string) {
	entries, _ := os.ReadDir(folder) // what cannot be listed stays
	for _, e := range entries {
		if e.Name() != base+".next" && !strings.HasPrefix(e.Name(), base+".next-") {
			continue
		}
		if info, err := e.Info(); err == nil && info.Mode().IsRegular() && time.Since(info.ModTime()) > abandoned {
			_ = os.Remove(filepath.Join(folder, e.Name())) // the next one tries again
		}
	}
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
