package top

import (
	"bytes"
	"net/url"
	"strings"

	"github.com/weir-edge/weir/pkg/limiter/rules"
)

// Split returns what distinguishes a counter's key from others of its rule, which counts by so
// many parts: the first one, and the others with their colons.
func Split(key []byte, parts int) (subject, rest []byte) {
	if i := bytes.IndexByte(key, '{'); i >= 0 {
		key = key[i+1:]
	}
	end := max(bytes.IndexByte(key, '}'), 0) // braces in values are escaped
	subject, rest = key[:end], key[end:]
	at := len(rest)
	for range parts - 1 {
		at = max(bytes.LastIndexByte(rest[:at], ':'), 0)
	}
	return subject, rest[at:]
}

// Values returns the values of a key as operators write them, such as 203.0.113.7 or
// header:X-Api-Key=~HASH.
func (k *Key) Values(parts []rules.KeyPart) []string {
	if k.Cut {
		return []string{k.Name + "…"}
	}
	values, name := make([]string, len(parts)), k.Name
	for i := len(parts) - 1; i >= 0; i-- {
		value := name
		if i > 0 { // only the first part may contain a colon
			at := strings.LastIndexByte(name, ':')
			value, name = name[at+1:], name[:max(at, 0)]
		}
		if !parts[i].OfClient() {
			values[i] = parts[i].String() + "=" + value
		} else if plain, err := url.PathUnescape(value); err == nil {
			values[i] = plain
		}
	}
	return values
}
