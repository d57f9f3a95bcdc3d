// Package paths reads the path of a request in every way that an origin might.
//
// Programs differ on whether an encoded slash separates segments, whether repeated
// slashes are one, whether a backslash is a slash, whether a segment's ;parameters belong
// to its name, and when, if ever, they remove dot segments. A limit that considers only
// one of these readings can be bypassed at an origin that uses another. Readings lists
// them all, so that a decision can hold for each.
package paths

import (
	"bytes"
	"errors"
	"unicode"
	"unicode/utf8"
)

// Max is how many readings a path may have. Legitimate paths have up to four.
const Max = 8

// Plainly ends the message about a path with several readings.
const Plainly = "; send it without encoded slashes, repeated slashes, dot segments, backslashes and parameters"

// The faults for which a path is refused.
var (
	ErrControl = errors.New("the path has a control character, plain or encoded, or a space; leave control characters out and write spaces as %20")
	ErrRoot    = errors.New("the path leaves its root by dot segments; send the intended path")
	ErrTooMany = errors.New("the path can be read in too many ways, in total or for its length" + Plainly)
	ErrForm    = errors.New("the path does not begin with /")
)

// keptSlash represents, in a reading, an encoded slash that its origin treats as part of
// the segment. No rule can name it.
const keptSlash = 0

// How the tokens of a path represent percent-encoded bytes that could be punctuation.
// Paths with these control characters are refused, so they are free.
const (
	encodedSlash     = keptSlash
	encodedDot       = 1
	encodedSemicolon = 2
	encodedBackslash = 3
)

// Readings holds the readings of one path. Reuse it: its buffers grow to what the paths
// need, at most ten times the longest, and then reading allocates nothing.
type Readings struct {
	plain []byte // the only reading, if it is not in buf
	buf   []byte
	ends  []int // of each reading in buf
	work  int   // so far, up to maxWork

	tokens, cut, step, reading, twice []byte
}

// Len returns the number of readings.
func (r *Readings) Len() int {
	if r.plain != nil {
		return 1
	}
	return len(r.ends)
}

// At returns reading i, decoded, with a zero byte for a slash within a segment. It is
// valid until the next Read, and only while the path that was read is.
func (r *Readings) At(i int) []byte {
	switch {
	case r.plain != nil:
		return r.plain
	case i == 0:
		return r.buf[:r.ends[0]]
	}
	return r.buf[r.ends[i-1]:r.ends[i]]
}

// Reset releases the path, and buffers larger than most paths need.
func (r *Readings) Reset() {
	const most = 64 << 10
	r.plain, r.buf, r.ends = nil, r.buf[:0], r.ends[:0]
	if cap(r.buf)+cap(r.tokens)+cap(r.cut)+cap(r.step)+cap(r.reading)+cap(r.twice) > most {
		*r = Readings{}
	}
}

// special marks the bytes that may give a path a second reading, or none.
var special = func() (t [256]bool) {
	for c := range byte(' ' + 1) {
		t[c] = true
	}
	t[0x7f], t['%'], t['\\'], t[';'] = true, true, true, true
	return t
}()

// Read reads the path of a request target as sent, without its query.
func (r *Readings) Read(raw []byte) error {
	r.plain, r.buf, r.ends, r.work = nil, r.buf[:0], r.ends[:0], 0
	if len(raw) == 0 || raw[0] != '/' {
		return ErrForm
	}
	if isPlain(raw) {
		r.plain = raw
		return nil
	}
	for _, c := range raw {
		if c <= ' ' || c == 0x7f {
			return ErrControl
		}
	}
	if err := r.readAs(raw); err != nil {
		return err
	}
	// The origin, or a second program behind it, may decode again.
	r.twice = append(r.twice[:0], r.buf[:r.ends[0]]...)
	if !hasEscape(r.twice) {
		return nil
	}
	for i, c := range r.twice {
		if c == keptSlash {
			r.twice[i] = '/'
		}
	}
	return r.readAs(r.twice)
}

func isPlain(raw []byte) bool {
	last := byte(0)
	for _, c := range raw {
		if special[c] || last == '/' && (c == '/' || c == '.') {
			return false
		}
		last = c
	}
	return true
}

// readAs adds the readings of a path that is decoded once.
func (r *Readings) readAs(raw []byte) error {
	var control bool
	if r.tokens, control = tokenize(r.tokens[:0], raw); control {
		return ErrControl
	}
	if err := r.all(r.tokens); err != nil {
		return err
	}
	if len(raw) < 2 || !slash(raw[1], true) {
		return nil
	}
	// URL parsers that get the whole target read what follows two slashes as a host.
	rest := bytes.TrimLeft(r.tokens, `/\`)
	i := bytes.IndexAny(rest, `/\`)
	if i < 0 {
		return r.add([]byte("/"))
	}
	rest = rest[i:]
	rest[0] = '/'
	return r.all(rest)
}

// tokenize appends a decoded path, but keeps encoded bytes that could be punctuation
// distinct. Invalid encodings are kept as they are. It reports whether a control
// character was encoded.
func tokenize(dst, raw []byte) (tokens []byte, control bool) {
	for i := 0; i < len(raw); i++ {
		c := raw[i]
		if c == '%' && i+2 < len(raw) {
			if high, low := Unhex(raw[i+1]), Unhex(raw[i+2]); high < 16 && low < 16 {
				i += 2
				c = high<<4 | low
				control = control || c < ' ' || c == 0x7f
				switch c {
				case '/':
					c = encodedSlash
				case '.':
					c = encodedDot
				case ';':
					c = encodedSemicolon
				case '\\':
					c = encodedBackslash
				}
			}
		}
		dst = append(dst, c)
	}
	return dst, control
}

// settle replaces encoded characters by plain ones, except for a slash within a segment.
func settle(tokens []byte) {
	for i, c := range tokens {
		switch c {
		case encodedDot:
			tokens[i] = '.'
		case encodedSemicolon:
			tokens[i] = ';'
		case encodedBackslash:
			tokens[i] = '\\'
		}
	}
}

// Unhex returns the value of a hexadecimal digit, or 16.
func Unhex(c byte) byte {
	switch {
	case c >= '0' && c <= '9':
		return c - '0'
	case c|0x20 >= 'a' && c|0x20 <= 'f':
		return c | 0x20 - 'a' + 10
	}
	return 16
}

func hasEscape(b []byte) bool {
	for {
		i := bytes.IndexByte(b, '%')
		if i < 0 || i+2 >= len(b) {
			return false
		}
		if Unhex(b[i+1]) < 16 && Unhex(b[i+2]) < 16 {
			return true
		}
		b = b[i+1:]
	}
}

// add adds the reading in tokens, unless it is a duplicate.
func (r *Readings) add(tokens []byte) error {
	start := len(r.buf)
	r.buf = append(r.buf, tokens...)
	text := r.buf[start:]
	settle(text)
	for i := range r.ends {
		if bytes.Equal(r.At(i), text) {
			r.buf = r.buf[:start]
			return nil
		}
	}
	if len(r.ends) == Max {
		return ErrTooMany
	}
	r.ends = append(r.ends, len(r.buf))
	return nil
}

// AppendKey appends a form that all readings of a path share unless they name different
// resources: decoded again, with only single plain slashes, without parameters and dot
// segments. Counting by it makes a few more paths share a counter, but never gives one path
// two.
func AppendKey(dst, reading []byte) []byte {
	if len(reading) == 0 || reading[0] != '/' || isPlain(reading) {
		return append(dst, reading...)
	}
	start := len(dst)
	dst, _ = tokenize(dst, reading)
	w := walk{late: true, backslash: true, strip: true, stripLate: true, merge: true, dots: allDots}
	dst, _ = w.over(dst[:start], dst[start:]) // in place: the output never overtakes the input
	settle(dst[start:])
	return dst
}

// AppendRoute appends the form of AppendKey without the differences that some origins also ignore:
// the case of letters, and slashes at the end.
func AppendRoute(dst, reading []byte) []byte {
	start := len(dst)
	dst = AppendKey(dst, reading)
	for i := start; i < len(dst); i++ {
		if c := dst[i]; c >= 'A' && c <= 'Z' {
			dst[i] = c | 0x20
		} else if c >= utf8.RuneSelf {
			letter, size := utf8.DecodeRune(dst[i:])
			if lower := unicode.ToLower(letter); utf8.RuneLen(lower) == size { // all but a few
				utf8.EncodeRune(dst[i:], lower)
			}
			i += size - 1
		}
	}
	for len(dst) > start+1 && dst[len(dst)-1] == '/' {
		dst = dst[:len(dst)-1]
	}
	return dst
}

// AppendNormal appends the normal form of a path (RFC 3986, 6.2.2): unreserved characters
// decoded, the other encodings in upper case, dot segments removed. Slashes are not merged.
func AppendNormal(dst, raw []byte) ([]byte, error) {
	const digits = "0123456789ABCDEF"
	start := len(dst)
	for i := 0; i < len(raw); i++ {
		c := raw[i]
		if c == '%' && i+2 < len(raw) {
			if high, low := Unhex(raw[i+1]), Unhex(raw[i+2]); high < 16 && low < 16 {
				i += 2
				if c = high<<4 | low; !unreserved(c) {
					dst = append(dst, '%', digits[high], digits[low])
					continue
				}
			}
		}
		dst = append(dst, c)
	}
	if len(dst) == start || dst[start] != '/' {
		return dst, ErrForm
	}
	w := walk{dots: rawDots}
	return w.over(dst[:start], dst[start:]) // in place: the output never overtakes the input
}

func unreserved(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '.' || c == '_' || c == '~'
}
