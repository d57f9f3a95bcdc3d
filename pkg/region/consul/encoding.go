package consul

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
)

const (
	// MaxDocument is the maximum length of a document before compression, in bytes.
	MaxDocument = 2 << 20
	// maxValue is Consul's limit for the value of one key (limits.kv_max_value_size).
	maxValue = 512 << 10
	// maxPlain is the longest document that is stored as it is. In a transaction, whose
	// limit is the same, a value is a third longer.
	maxPlain = maxValue / 2
)

// gzipMagic begins a compressed value. No YAML or JSON document begins with it.
var gzipMagic = []byte{0x1f, 0x8b}

// Encode returns the value to store for a document: the document itself, or compressed if
// it is too long for one key.
func Encode(document []byte) ([]byte, error) {
	if len(document) > MaxDocument {
		return nil, fmt.Errorf("document is %d bytes; the maximum is %d; split or shorten it", len(document), MaxDocument)
	}
	if len(document) <= maxPlain && !bytes.HasPrefix(document, gzipMagic) {
		return document, nil
	}
	var stored bytes.Buffer
	w, err := gzip.NewWriterLevel(&stored, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(document); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	if len(document) <= maxValue && stored.Len() >= len(document) && !bytes.HasPrefix(document, gzipMagic) {
		return document, nil
	}
	if stored.Len() > maxValue {
		return nil, fmt.Errorf("document is %d bytes after compression, over Consul's %d for one key; split or shorten it", stored.Len(), maxValue)
	}
	return stored.Bytes(), nil
}

// Decode returns the document in a stored value. It never decompresses more than
// MaxDocument bytes.
func Decode(stored []byte) ([]byte, error) {
	if !bytes.HasPrefix(stored, gzipMagic) {
		if len(stored) > MaxDocument {
			return nil, fmt.Errorf("is %d bytes, over the %d that a document may have", len(stored), MaxDocument)
		}
		return stored, nil
	}
	r, err := gzip.NewReader(bytes.NewReader(stored))
	if err != nil {
		return nil, fmt.Errorf("decompress: %w", err)
	}
	document, err := io.ReadAll(io.LimitReader(r, MaxDocument+1))
	if err != nil {
		return nil, fmt.Errorf("decompress: %w", err)
	}
	if len(document) > MaxDocument {
		return nil, fmt.Errorf("is over %d bytes when decompressed, more than a document may have", MaxDocument)
	}
	return document, nil
}
