package paths

import "bytes"

// When repeated slashes are merged and parameters removed.
const (
	never    = iota
	last     // after removing the dot segments
	first    // before removing them
	earliest // before decoding; only parameters
	blind    // the same, and before a backslash becomes a slash
	orders
)

// Which dot segments are removed.
const (
	noDots  = iota
	rawDots // those written as dots, between slashes written as slashes
	urlDots // the same, including encoded dots, as in WHATWG URLs
	allDots // including those that decoding produces
	dotKinds
)

// walk is one pass over the segments of a path.
type walk struct {
	late      bool // an encoded slash separates like a plain one
	backslash bool // a backslash is a slash
	strip     bool // a segment ends at its parameters
	stripLate bool // also at an encoded semicolon
	merge     bool // empty segments are dropped, except the last
	dots      int
	bare      bool // a dot segment at the end leaves no trailing slash
}

func slash(c byte, backslash bool) bool { return c == '/' || backslash && c == '\\' }

// The meaning of a byte to a walk.
const (
	inName = iota
	cuts   // the parameters of the segment begin
	separates
)

type kinds [256]uint8

// byWalk are the kinds of all bytes, for each of the 16 ways to split a path into segments.
var byWalk = func() (all [16]kinds) {
	for i := range all {
		w := walk{late: i&1 > 0, backslash: i&2 > 0, strip: i&4 > 0, stripLate: i&8 > 0}
		for c := range byte(0x80) {
			switch {
			case slash(c, w.backslash) || w.late && (c == encodedSlash || w.backslash && c == encodedBackslash):
				all[i][c] = separates
			case w.strip && (c == ';' || w.stripLate && c == encodedSemicolon):
				all[i][c] = cuts
			}
		}
	}
	return all
}()

func (w *walk) kinds() *kinds {
	i := 0
	if w.late {
		i |= 1
	}
	if w.backslash {
		i |= 2
	}
	if w.strip {
		i |= 4
	}
	if w.stripLate {
		i |= 8
	}
	return &byWalk[i]
}

// segment returns the segment after the separator at src[i], and where it ends.
func (k *kinds) segment(src []byte, i int) (name []byte, end int) {
	cut := i + 1
	for cut < len(src) && k[src[cut]] == inName {
		cut++
	}
	end = cut
	for end < len(src) && k[src[end]] != separates {
		end++
	}
	return src[i+1 : cut], end
}

// ups returns how many levels up a segment leads: 0 for ".", 1 for "..", -1 for others.
func (w *walk) ups(name []byte) int {
	if w.dots == noDots || len(name) == 0 || len(name) > 2 {
		return -1
	}
	for _, c := range name {
		if c != '.' && (w.dots == rawDots || c != encodedDot) {
			return -1
		}
	}
	return len(name) - 1
}

// over appends what remains of src, which begins with a slash, to dst.
func (w *walk) over(dst, src []byte) ([]byte, error) {
	root, k := len(dst), w.kinds()
	for i := 0; i < len(src); {
		name, end := k.segment(src, i)
		i = end
		switch up := w.ups(name); {
		case up >= 0:
			if up > 0 {
				if len(dst) == root {
					return dst, ErrRoot
				}
				dst = dst[:bytes.LastIndexByte(dst, '/')]
			}
			if end == len(src) && !w.bare {
				dst = append(dst, '/')
			}
		case w.merge && len(name) == 0 && end < len(src):
		default:
			dst = append(append(dst, '/'), name...)
		}
	}
	if len(dst) == root {
		dst = append(dst, '/')
	}
	return dst, nil
}

// features are the parts of a path that programs treat differently.
type features struct {
	encodedSlash, backslash, semicolon, encodedSemicolon, encodedDot bool

	double, dot, lastDot bool // an empty segment, a dot segment, possibly one at the end
}

// survey looks for every feature that any program might find.
func survey(src []byte) (f features) {
	for _, c := range src {
		switch c {
		case encodedSlash:
			f.encodedSlash = true
		case encodedDot:
			f.encodedDot = true
		case encodedSemicolon:
			f.semicolon, f.encodedSemicolon = true, true
		case encodedBackslash:
			f.encodedSlash, f.backslash = true, true
		case '\\':
			f.backslash = true
		case ';':
			f.semicolon = true
		}
	}
	w := walk{late: true, backslash: true, strip: true, stripLate: true, dots: allDots}
	k := w.kinds()
	for i := 0; i < len(src); {
		name, end := k.segment(src, i)
		i = end
		f.double = f.double || len(name) == 0 && end < len(src)
		f.dot = f.dot || w.ups(name) >= 0
	}
	f.lastDot = f.dot && bytes.IndexAny(src[bytes.LastIndexByte(src, '/'):], ".\x01") > 0
	return f
}

// maxWork bounds the total bytes of all further readings of a path, duplicates included. A
// path of usual size may have every feature, one of 16 KiB a single one.
const maxWork = 16 << 10

// program is one way to read a path.
type program struct {
	late, backslash, bare bool
	strip, merge, dots    int
}

// all adds every reading of a path in tokens.
func (r *Readings) all(src []byte) error {
	f := survey(src)
	again := false
	// Also without a dot segment, parameters removed with them go before decoding and after.
	for dots := range upTo(f.dot || f.encodedSlash && f.encodedSemicolon, dotKinds) {
		if dots == rawDots && !f.encodedDot && !f.encodedSlash && !f.encodedSemicolon {
			continue // the same as allDots
		}
		if dots == urlDots && (!f.encodedDot || !f.encodedSlash && !f.encodedSemicolon) {
			continue // the same as rawDots or allDots
		}
		for late := range upTo(f.encodedSlash, 2) {
			for backslash := range upTo(f.backslash, 2) {
				for strip := range upTo(f.semicolon, orders) {
					if strip == first && dots == noDots || strip == earliest && !f.encodedSlash && !f.encodedSemicolon || strip == blind && backslash == 0 {
						continue // same as another
					}
					for merge := range upTo(f.double, earliest) {
						if merge == first && dots == noDots {
							continue
						}
						for bare := range upTo(dots != noDots && f.lastDot, 2) {
							if again {
								r.work += len(src)
							}
							if again = true; r.work > maxWork {
								return ErrTooMany
							}
							if err := r.one(src, program{late == 1, backslash == 1, bare == 1, strip, merge, dots}); err != nil {
								return err
							}
						}
					}
				}
			}
		}
	}
	return nil
}

func upTo(present bool, n int) int {
	if present {
		return n
	}
	return 1
}

// one adds the reading of one program.
func (r *Readings) one(src []byte, p program) error {
	if p.strip == earliest || p.strip == blind {
		w := walk{backslash: p.backslash && p.strip == earliest, strip: true}
		r.cut, _ = w.over(r.cut[:0], src)
		src = r.cut
	}
	decoded := p.strip == first || p.strip == last
	after := walk{late: p.late, backslash: p.backslash, strip: decoded, stripLate: decoded, merge: p.merge != never}
	if p.dots != noDots {
		before := walk{backslash: p.backslash, strip: p.strip == first, merge: p.merge == first, dots: p.dots, bare: p.bare}
		before.late, before.stripLate = p.late && p.dots == allDots, p.dots == allDots
		var err error
		if r.step, err = before.over(r.step[:0], src); err != nil {
			return err
		}
		src = r.step
	}
	r.reading, _ = after.over(r.reading[:0], src) // only dot segments can fail
	return r.add(r.reading)
}
