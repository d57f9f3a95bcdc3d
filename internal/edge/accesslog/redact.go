package accesslog

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"strings"

	"github.com/weir-edge/weir/internal/disk"
	"github.com/weir-edge/weir/pkg/digest"
	"github.com/weir-edge/weir/pkg/paths"
)

// Redactor replaces possible secrets by a keyed hash: equal values stay equal, so rules
// still count them correctly. Everything that stores requests uses it.
type Redactor struct {
	key     []byte
	headers []header
}

// header is a header that is kept.
type header struct {
	name   string
	secret bool // its value is hashed
	page   bool // its value is a URL
	cookie bool
}

// credentials are name parts of headers that carry secrets.
var credentials = []string{"auth", "cookie", "key", "password", "secret", "session", "token", "signature"}

const hashedBytes = 8

// NewRedactor returns a redactor for headers of these names. Without a key file, each start
// makes a key: unkeyed hashes could be reversed with a list of likely values.
func NewRedactor(keyFile string, names []string) (*Redactor, error) {
	key, err := hashKey(keyFile)
	return &Redactor{key, headersOf(names)}, err
}

func hashKey(file string) ([]byte, error) {
	if file == "" {
		key := make([]byte, sha256.Size)
		_, _ = rand.Read(key) // never fails
		return key, nil
	}
	return disk.Secret(file)
}

func headersOf(names []string) []header {
	var headers []header
	for _, name := range names {
		lower := strings.ToLower(name)
		h := header{
			name: name, cookie: lower == "cookie",
			page: strings.HasPrefix(lower, "refer") || strings.Contains(lower, "url") || strings.Contains(lower, "uri"),
		}
		for _, part := range credentials {
			h.secret = h.secret || strings.Contains(lower, part)
		}
		headers = append(headers, h)
	}
	return headers
}

// ValidHeader reports whether a header of this name can be kept.
func ValidHeader(name string) bool {
	return name != "" && strings.Trim(strings.ToLower(name), "abcdefghijklmnopqrstuvwxyz0123456789-_") == ""
}

// AppendHash appends the beginning of the value's keyed SHA-256, or nothing for an empty
// value. It uses the spare capacity of b.
func (r *Redactor) AppendHash(b, value []byte) []byte {
	if len(value) == 0 {
		return b
	}
	n := len(b)
	return digest.Append(b, append(append(b, r.key...), value...)[n:], hashedBytes)
}

// AppendQuery appends a query with its values hashed, and hashes parameters without a
// value, which may be secrets themselves. before separates the query from what precedes it.
func (r *Redactor) AppendQuery(b, query []byte, before byte) []byte {
	for len(query) > 0 {
		var pair []byte
		if pair, query, _ = bytes.Cut(query, []byte("&")); len(pair) == 0 {
			continue
		}
		b = append(b, before)
		name, value, _ := bytes.Cut(pair, []byte("="))
		if len(bytes.Trim(value, "=")) == 0 {
			b = r.AppendHash(b, pair)
		} else {
			b = append(append(b, name...), '=')
			n := len(b)
			b = digest.Append(b, paths.AppendDecoded(append(b, r.key...), value)[n:], hashedBytes)
		}
		before = '&'
	}
	return b
}

// AppendHeader appends the value of the i-th header.
func (r *Redactor) AppendHeader(b []byte, i int, value []byte) []byte {
	switch h := &r.headers[i]; {
	case h.cookie:
		return r.appendCookies(b, value)
	case h.secret:
		return r.AppendHash(b, value)
	case h.page:
		return append(b, page(value)...)
	}
	return append(b, value...)
}

func (r *Redactor) appendCookies(b, line []byte) []byte {
	for first := true; len(line) > 0; {
		var pair []byte
		pair, line, _ = bytes.Cut(line, []byte(";"))
		name, value, named := bytes.Cut(bytes.TrimSpace(pair), []byte("="))
		if !named { // it may be a bare value
			name, value = nil, name
		}
		if !first {
			b = append(b, "; "...)
		}
		if b = append(b, name...); named {
			b = append(b, '=')
		}
		n := len(b)
		if b = r.AppendHash(b, value); len(b) > n || named {
			first = false
		}
	}
	return b
}
