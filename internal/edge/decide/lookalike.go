package decide

import (
	"fmt"
	"strings"
)

// CheckName returns an error if programs could take a header for another that weir sets or
// consults: CGI and its successors read every character that is not a letter or digit as
// "_". A rule would then count by one header while the origin reads the other.
func CheckName[T []byte | string](d *Decider, r *Request, name T) error {
	if usualName(name) {
		return nil
	}
	written := strings.ToLower(string(name))
	read := strings.Map(func(c rune) rune {
		if c >= 'a' && c <= 'z' || c >= '0' && c <= '9' {
			return c
		}
		return '-'
	}, written)
	if d.Sets(r, read) && !d.Sets(r, written) {
		return fmt.Errorf("the header %.64q can be read as %.64q", written, read)
	}
	return nil
}

// Lower reports whether a name has only visible characters, and none in upper case.
func Lower[T []byte | string](name T) bool {
	for i := range len(name) {
		if c := name[i]; c >= 'A' && c <= 'Z' || c <= ' ' || c >= 0x7f {
			return false
		}
	}
	return true
}

// CheckValue returns an error if a value has a control byte. Programs end or trim values there
// differently, so a rule could count values apart that an origin reads alike.
func CheckValue[T []byte | string](name T, value []byte) error {
	for i := range len(value) {
		if c := value[i]; c < ' ' && c != '\t' || c == 0x7f {
			return fmt.Errorf("the header %.64q has a control character", string(name))
		}
	}
	return nil
}

// usualName reports whether a name has only letters, digits and hyphens, or is a pseudo-header.
func usualName[T []byte | string](name T) bool {
	for i := range len(name) {
		switch c := name[i]; {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '-', c == ':' && i == 0:
		default:
			return false
		}
	}
	return true
}

// Sets reports whether weir sets or consults a header. Its name is in lower case.
func (d *Decider) Sets(r *Request, header string) bool {
	switch header {
	case "host", "content-length", "transfer-encoding", "forwarded", "x-real-ip", "x-original-url", "x-rewrite-url":
		return true
	case "weir-risk":
		return d.Behavior != nil
	}
	return strings.HasPrefix(header, "x-forwarded-") || d.consults(r, header)
}
