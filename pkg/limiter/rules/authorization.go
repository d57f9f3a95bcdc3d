package rules

import (
	"bytes"
	"strings"
)

// appendAuthorization appends credentials in canonical form. They begin with a scheme in any
// letter case, followed by any number of spaces (RFC 9110, 11.4): Basic and bAsIc are the same.
func appendAuthorization(dst, value []byte) []byte {
	value = bytes.Trim(value, " \t")
	end := bytes.IndexAny(value, " \t")
	if end < 0 { // no scheme, so letter case may be part of the secret
		return append(dst, value...)
	}
	start := len(dst)
	for i, c := range value[:end] {
		switch {
		case i == 0 && c >= 'a' && c <= 'z':
			c -= 'a' - 'A'
		case i > 0 && c >= 'A' && c <= 'Z':
			c += 'a' - 'A'
		}
		dst = append(dst, c)
	}
	scheme, rest := dst[start:], bytes.TrimLeft(value[end:], " \t")
	if string(scheme) == "Basic" {
		return appendBasic(append(dst, ' '), rest)
	}
	return append(append(dst, ' '), rest...)
}

const base64Digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"

// appendBasic appends the Base64 of a user and password as it should be: with padding, and no
// bits after the last byte. Some origins also accept other characters in it or behind it, so
// those that have any share one form.
func appendBasic(dst, text []byte) []byte {
	text = bytes.TrimRight(text, "=")
	start := len(dst)
	for _, c := range text {
		if strings.IndexByte(base64Digits, c) < 0 {
			return dst[:start]
		}
		dst = append(dst, c)
	}
	if used := len(text) % 4; used > 1 { // a single digit is less than a byte
		last := &dst[len(dst)-1]
		*last = base64Digits[strings.IndexByte(base64Digits, *last)&^(1<<(6-2*(used-1))-1)]
		dst = append(dst, "=="[:4-used]...)
	}
	return dst
}
