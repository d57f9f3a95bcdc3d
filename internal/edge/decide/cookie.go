package decide

import "bytes"

// Cookie reads a Cookie header's value for gateways' Fields, continuing from the result for
// earlier headers. Spaces and quotes around a cookie's value are not part of it, and a
// malformed cookie is ignored, as on the public listener.
func Cookie(line []byte, name string, first []byte, n int) ([]byte, int) {
	for len(line) > 0 {
		var pair []byte
		pair, line, _ = bytes.Cut(line, []byte(";"))
		k, v, named := bytes.Cut(pair, []byte("="))
		if v = unquoted(v); !named || string(bytes.Trim(k, " ")) != name || bytes.ContainsAny(v, `"\`) {
			continue
		}
		if n++; n == 1 {
			first = v
		}
	}
	return first, n
}

func unquoted(v []byte) []byte {
	v = bytes.Trim(v, " ")
	if len(v) > 1 && v[0] == '"' && v[len(v)-1] == '"' {
		v = v[1 : len(v)-1]
	}
	return v
}

// AppendLower appends the name of a header in lower case, as in HTTP/2.
func AppendLower(b []byte, name string) []byte {
	for i := range len(name) {
		c := name[i]
		if c >= 'A' && c <= 'Z' {
			c |= 0x20
		}
		b = append(b, c)
	}
	return b
}
