package rules

import (
	"bytes"
	"unicode"
	"unicode/utf8"

	"github.com/weir-edge/weir/pkg/paths"
)

// Cookie is FindCookie in all Cookie headers of a request, as received.
func Cookie(lines [][]byte, name string) (value []byte, n int) {
	for _, line := range lines {
		value, n = FindCookie(line, name, value, n)
	}
	return value, n
}

// FindCookie looks for a cookie in one Cookie header, and continues from the result for those
// before it: the first value, and how many times the cookie occurs. Origins differ in what
// ends a name and a value: some ignore tabs or non-ASCII white space, others treat a space or a
// comma (RFC 2109) like a semicolon. FindCookie finds what any of them would, so that no form of a
// cookie hides it from a rule.
func FindCookie(line []byte, name string, first []byte, n int) ([]byte, int) {
	for len(line) > 0 {
		var pair []byte
		pair, line, _ = bytes.Cut(line, []byte(";"))
		gap := -1 // how far from the end the last blank or comma is
		for {
			key, value, named := bytes.Cut(pair, []byte("="))
			if !named {
				break
			}
			if isCookie(key, name) {
				if n++; n == 1 {
					first = cookieValue(value)
				}
			}
			if pair = value; gap < 0 { // once, so that many "=" do not cost the square of their number
				gap = len(pair) - bytes.LastIndexAny(pair, gaps)
			}
			if len(pair) < gap {
				break
			}
		}
	}
	return first, n
}

const gaps = " \t," // may separate cookies, apart from semicolons

// isCookie reports whether a name is the last word of key. Names are ASCII. PHP, Rack and Perl's CGI
// decode them, or did.
func isCookie(key []byte, name string) bool {
	var room [64]byte
	if bytes.ContainsAny(key, "%+") {
		key = paths.AppendDecoded(room[:0], key)
	}
	key, _, _ = bytes.Cut(key, []byte{0})
	key = bytes.TrimRightFunc(key, outside)
	element, _, _ := bytes.Cut(key, []byte("[")) // in PHP
	return isLastWord(key, name) || isLastWord(element, name)
}

func isLastWord(key []byte, name string) bool {
	before := len(key) - len(name)
	return before >= 0 && paths.SameName(key[before:], name) && (before == 0 || outside(rune(key[before-1])))
}

func outside(c rune) bool { return c <= ' ' || c >= 0x7f || c == ',' }

// cookieValue returns what every origin reads as part of a value: without white space around
// it and what follows a gap, or between quotes, of which some origins ignore the second.
func cookieValue(v []byte) []byte {
	v = trimBlanks(v)
	if len(v) == 0 || v[0] != '"' {
		if i := bytes.IndexAny(v, gaps); i >= 0 {
			v = v[:i]
		}
		return v
	}
	for i := 1; i < len(v); i++ {
		switch v[i] {
		case '\\':
			i++
		case '"':
			return v[1:i]
		}
	}
	return v[1:max(len(v)-1, 1)]
}

// trimBlanks removes white space around a value, in UTF-8 or Latin-1.
func trimBlanks(v []byte) []byte {
	for len(v) > 0 {
		r, size := utf8.DecodeRune(v)
		if !isBlank(r, v[0]) {
			break
		}
		v = v[size:]
	}
	for len(v) > 0 {
		r, size := utf8.DecodeLastRune(v)
		if !isBlank(r, v[len(v)-1]) {
			break
		}
		v = v[:len(v)-size]
	}
	return v
}

func isBlank(r rune, c byte) bool {
	return unicode.IsSpace(r) || r == utf8.RuneError && (c == 0xa0 || c == 0x85)
}

// appendCookie appends a value as the origins read it that decode most: escapes as in quoted
// strings, then percent-encodings. Two values that only some origins tell apart count as one.
func appendCookie(dst, value []byte) []byte {
	if !bytes.ContainsAny(value, `%+\`) {
		return append(dst, value...)
	}
	start := len(dst)
	for i := 0; i < len(value); i++ {
		c := value[i]
		if c == '\\' && i+1 < len(value) {
			i++
			if c = value[i]; i+2 < len(value) && c >= '0' && c <= '3' && isOctal(value[i+1]) && isOctal(value[i+2]) {
				c = (c-'0')<<6 | (value[i+1]-'0')<<3 | (value[i+2] - '0')
				i += 2
			}
		}
		dst = append(dst, c)
	}
	decoded := paths.AppendDecoded(dst[:start], dst[start:]) // in place: the output never overtakes the input
	for i, c := range decoded[start:] {
		if c == '+' { // some origins decode it to a space
			decoded[start+i] = ' '
		}
	}
	return decoded
}

func isOctal(c byte) bool { return c >= '0' && c <= '7' }
