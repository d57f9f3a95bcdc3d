package decide

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
