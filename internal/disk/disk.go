// Package disk replaces files so that there is a whole one at any instant, and reads them
// back.
package disk

import (
	"errors"
	"io"
	"os"
	"path/filepath"
)

// Replace writes a file that only its owner can read, and its folder if that is missing.
// Also after a loss of power the file is the one before or the new one.
func Replace(file string, data []byte) error {
	folder := filepath.Dir(file)
	if err := os.MkdirAll(folder, 0o750); err != nil {
		return err
	}
	next := file + ".next"
	if err := os.Remove(next); err != nil && !errors.Is(err, os.ErrNotExist) { // of a process that died
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
		_ = os.Remove(next) // the fault is the one before
		return err
	}
	d, err := os.Open(folder)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// Read returns at most the first max bytes of a file.
func Read(file string, max int64) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, max))
}
