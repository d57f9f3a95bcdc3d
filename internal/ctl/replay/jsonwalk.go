package replay

import (
	"bytes"
	"iter"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/weir-edge/weir/pkg/paths"
)

// The functions of this file walk JSON that is known to be valid. A line is read once
// from front to back, and most of its text stays where it is.

// members ranges over the names, in quotes, and the values of an object.
func members(object []byte) iter.Seq2[[]byte, []byte] {
	return func(yield func(name, value []byte) bool) {
		for rest := object[1:]; ; {
			rest = skipTo(rest)
			if rest[0] == '}' {
				return
			}
			end := valueEnd(rest)
			name := rest[:end]
			rest = skipTo(rest[end:])
			end = valueEnd(rest)
			if !yield(name, rest[:end]) {
				return
			}
			rest = rest[end:]
		}
	}
}

// items ranges over the values of an array.
func items(array []byte) iter.Seq[[]byte] {
	return func(yield func(value []byte) bool) {
		for rest := array[1:]; ; {
			rest = skipTo(rest)
			if rest[0] == ']' {
				return
			}
			end := valueEnd(rest)
			if !yield(rest[:end]) {
				return
			}
			rest = rest[end:]
		}
	}
}

// skipTo returns what follows white space, colons and commas.
func skipTo(b []byte) []byte {
	for {
		switch b[0] {
		case ' ', '\t', '\r', '\n', ':', ',':
			b = b[1:]
		default:
			return b
		}
	}
}

// valueEnd returns the length of the value that b begins with.
func valueEnd(b []byte) int {
	switch b[0] {
	case '"':
		return stringEnd(b)
	case '{', '[':
		depth := 0
		for i := 0; ; i++ {
			switch b[i] {
			case '"':
				i += stringEnd(b[i:]) - 1
			case '{', '[':
				depth++
			case '}', ']':
				if depth--; depth == 0 {
					return i + 1
				}
			}
		}
	}
	if i := bytes.IndexAny(b, ",]} \t\r\n"); i >= 0 {
		return i
	}
	return len(b)
}

func stringEnd(b []byte) int {
	for i := 1; ; i++ {
		switch b[i] {
		case '"':
			return i + 1
		case '\\':
			i++
		}
	}
}

// scalar returns the text of a string, and any other value as it is written.
func (a *arena) scalar(value []byte) []byte {
	if value[0] == '"' {
		return a.unquoted(value)
	}
	return value
}

// unquoted returns the text of a string. Bytes that are not UTF-8 stay as they are.
func (a *arena) unquoted(quoted []byte) []byte {
	b := quoted[1 : len(quoted)-1]
	if bytes.IndexByte(b, '\\') < 0 {
		return b
	}
	start := len(a.buf)
	for i := 0; i < len(b); i++ {
		c := b[i]
		if c == '\\' {
			i++
			if b[i] == 'u' {
				r, n := escapedRune(b[i-1:])
				a.buf = utf8.AppendRune(a.buf, r)
				i += n - 2
				continue
			}
			c = unescaped(b[i])
		}
		a.buf = append(a.buf, c)
	}
	return a.since(start)
}

// escapedRune decodes \u and four digits, or two of these that are one character, and returns how
// many bytes it took. Half a character becomes U+FFFD.
func escapedRune(b []byte) (r rune, n int) {
	const width = len(`\u0000`)
	r = hexRune(b)
	if utf16.IsSurrogate(r) && len(b) >= 2*width && b[width] == '\\' && b[width+1] == 'u' {
		if both := utf16.DecodeRune(r, hexRune(b[width:])); both != utf8.RuneError {
			return both, 2 * width
		}
	}
	return r, width // AppendRune takes a surrogate for U+FFFD
}

func hexRune(b []byte) rune {
	var r rune
	for _, c := range b[2:6] {
		r = r<<4 | rune(paths.Unhex(c))
	}
	return r
}
