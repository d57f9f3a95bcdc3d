package overload

import (
	"bytes"
	"fmt"
)

// Regenerate replaces the text of a Markdown document between the comments
//
//	<!-- make overload: NAME -->
//	<!-- end: NAME -->
func Regenerate(document []byte, name, text string) ([]byte, error) {
	begin, end := []byte(fmt.Sprintf("<!-- make overload: %s -->\n", name)), []byte(fmt.Sprintf("<!-- end: %s -->", name))
	before, rest, ok := bytes.Cut(document, begin)
	_, after, closed := bytes.Cut(rest, end)
	if !ok || !closed {
		return nil, fmt.Errorf("the document has no place for %q; add the lines %s and %s", name, bytes.TrimSpace(begin), end)
	}
	return bytes.Join([][]byte{before, begin, []byte(text), end, after}, nil), nil
}
