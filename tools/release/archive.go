package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"time"
)

// file is a file in an archive.
type file struct {
	name string
	mode int64
	data []byte
}

// tarball packs files below a directory; the same files always give the same bytes.
func tarball(directory string, date time.Time, files []file) ([]byte, error) {
	var out bytes.Buffer
	zip, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	t := tar.NewWriter(zip)
	for _, f := range files {
		h := &tar.Header{Name: directory + "/" + f.name, Mode: f.mode, Size: int64(len(f.data)), ModTime: date, Format: tar.FormatUSTAR}
		if err := t.WriteHeader(h); err != nil {
			return nil, err
		}
		if _, err := t.Write(f.data); err != nil {
			return nil, err
		}
	}
	if err := t.Close(); err != nil {
		return nil, err
	}
	if err := zip.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}
