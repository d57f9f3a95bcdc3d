package paths

import "bytes"

// AppendQuery appends the first value of a parameter in the query of a request target,
// decoded, and returns how many times the parameter occurs. A parameter with neither name
// nor value does not count.
func AppendQuery(dst, query []byte, name string) (decoded []byte, n int) {
	var value []byte
	for len(query) > 0 {
		var pair []byte
		pair, query, _ = bytes.Cut(query, []byte("&"))
		k, v, _ := bytes.Cut(pair, []byte("="))
		if bytes.ContainsAny(k, "%+") {
			all := AppendDecoded(dst, k)
			dst, k = all[:len(dst)], all[len(dst):]
		}
		if string(k) != name || len(k)+len(v) == 0 {
			continue
		}
		if n++; n == 1 {
			value = v
		}
	}
	return AppendDecoded(dst, value), n
}

// AppendDecoded decodes %XX, and + as a space. Invalid encodings are kept as they are.
func AppendDecoded(dst, src []byte) []byte {
	for i := 0; i < len(src); i++ {
		c := src[i]
		switch {
		case c == '%' && i+3 > len(src):
			return append(dst, src[i:]...)
		case c == '%':
			high, low := unhex(src[i+1]), unhex(src[i+2])
			if high < 16 && low < 16 {
				c = high<<4 | low
				i += 2
			}
		case c == '+':
			c = ' '
		}
		dst = append(dst, c)
	}
	return dst
}
