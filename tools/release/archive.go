package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"strings"
	"time"
)

// file is a file in an archive, or a directory if its name ends with a slash.
type file struct {
	name string
	mode int64
	data []byte
}

// below puts files into a directory.
func below(directory string, files []file) []file {
	moved := make([]file, len(files))
	for i, f := range files {
		moved[i] = file{directory + "/" + f.name, f.mode, f.data}
	}
	return moved
}

// pack writes a tar; the same files always give the same bytes. A file belongs to root, or to the user that owners names.
func pack(date time.Time, files []file, owners map[string]int) ([]byte, error) {
	var out bytes.Buffer
	t := tar.NewWriter(&out)
	for _, f := range files {
		h := &tar.Header{Name: f.name, Mode: f.mode, Size: int64(len(f.data)), ModTime: date, Format: tar.FormatUSTAR, Typeflag: tar.TypeReg}
		h.Uid, h.Gid = owners[f.name], owners[f.name]
		if strings.HasSuffix(f.name, "/") {
			h.Typeflag = tar.TypeDir
		}
		if err := t.WriteHeader(h); err != nil {
			return nil, err
		}
		if _, err := t.Write(f.data); err != nil {
			return nil, err
		}
	}
	err := t.Close()
	return out.Bytes(), err
}

// compress gzips data; the same data always gives the same bytes.
func compress(data []byte) ([]byte, error) {
	var out bytes.Buffer
	zip, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	if _, err := zip.Write(data); err != nil {
		return nil, err
	}
	err = zip.Close()
	return out.Bytes(), err
}

// tarball packs and compresses files below a directory.
func tarball(directory string, date time.Time, files []file) ([]byte, error) {
	data, err := pack(date, below(directory, files), nil)
	if err != nil {
		return nil, err
	}
	return compress(data)
}
