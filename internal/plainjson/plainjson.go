// Package plainjson keeps JSON free of characters that a terminal would interpret.
package plainjson

import (
	"bytes"
	"fmt"
	"unicode"
	"unicode/utf8"
)

// Escape escapes DEL and the C1 controls, which only strings can contain and which encoding/json
// leaves as they are.
func Escape(text []byte) []byte {
	control := func(r rune) bool { return r != '\n' && unicode.IsControl(r) }
	if !bytes.ContainsFunc(text, control) {
		return text
	}
	var plain []byte
	for _, r := range string(text) {
		if control(r) {
			plain = fmt.Appendf(plain, `\u%04x`, r)
		} else {
			plain = utf8.AppendRune(plain, r)
		}
	}
	return plain
}
