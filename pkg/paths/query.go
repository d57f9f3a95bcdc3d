package paths

import (
	"bytes"
	"unicode/utf8"
)

// AppendQuery appends the first value of a parameter in the query of a request target,
// decoded, and returns how many times the parameter occurs. A parameter with neither name
// nor value does not count. A semicolon ends a parameter too, as some programs have it.
func AppendQuery(dst, query []byte, name string) (decoded []byte, n int) {
	var value []byte
	for len(query) > 0 {
		pair := query
		if i := bytes.IndexAny(query, "&;"); i >= 0 {
			pair, query = query[:i], query[i+1:]
		} else {
			query = nil
		}
		k, v, _ := bytes.Cut(pair, []byte("="))
		if bytes.ContainsAny(k, "%+") {
			all := AppendDecoded(dst, k)
			dst, k = all[:len(dst)], all[len(dst):]
		}
		if !SameName(k, name) || len(k)+len(v) == 0 {
			continue
		}
		if n++; n == 1 {
			value = v
		}
	}
	return AppendDecoded(dst, value), n
}

// SameName reports whether programs may read the name of a parameter or cookie, as sent but
// decoded, as name. ASP.NET ignores the case of letters. PHP ignores spaces in front and what
// follows a zero byte, and turns ".", " " and "[" into "_". PHP, Rack and qs read name[0] as an
// element of name, Rack and qs also [name].
func SameName(sent []byte, name string) bool {
	if string(sent) == name {
		return true
	}
	sent = bytes.TrimLeft(sent, " ")
	if i := bytes.IndexByte(sent, 0); i >= 0 {
		sent = sent[:i]
	}
	return begins(sent, name) || begins(bytes.TrimLeft(sent, "[]"), name)
}

// begins reports whether name is all that precedes brackets, empty or around a number: page[size] is
// another parameter than page.
func begins(sent []byte, name string) bool {
	if len(sent) < len(name) || len(sent) > len(name) && sent[len(name)] != ']' && !isElement(sent[len(name):]) {
		return false
	}
	for i := range len(name) {
		if c := sent[i]; lower(c) != lower(name[i]) && (name[i] != '_' || c != '.' && c != ' ' && c != '[') {
			return false
		}
	}
	return true
}

// isElement reports whether b begins with [] or [0].
func isElement(b []byte) bool {
	if b[0] != '[' {
		return false
	}
	digits := bytes.TrimLeft(b[1:], "0123456789")
	return len(digits) > 0 && digits[0] == ']'
}

func lower(c byte) byte {
	if c >= 'A' && c <= 'Z' {
		c |= 0x20
	}
	return c
}

// AppendDecoded decodes %HH, %uHHHH, as ASP.NET and Perl's CGI do, and + as a space. Invalid
// encodings are kept as they are.
func AppendDecoded(dst, src []byte) []byte {
	for i := 0; i < len(src); i++ {
		c := src[i]
		switch {
		case c == '%' && i+3 > len(src):
			return append(dst, src[i:]...)
		case c == '%':
			high, low := Unhex(src[i+1]), Unhex(src[i+2])
			if high < 16 && low < 16 {
				c = high<<4 | low
				i += 2
			} else if r := unicodeAt(src[i+1:]); r >= 0 {
				dst = utf8.AppendRune(dst, r)
				i += 5
				continue
			}
		case c == '+':
			c = ' '
		}
		dst = append(dst, c)
	}
	return dst
}

// unicodeAt returns what uHHHH stands for, or -1.
func unicodeAt(b []byte) (r rune) {
	if len(b) < 5 || b[0]|0x20 != 'u' {
		return -1
	}
	for _, c := range b[1:5] {
		digit := Unhex(c)
		if digit > 15 {
			return -1
		}
		r = r<<4 | rune(digit)
	}
	return r
}
