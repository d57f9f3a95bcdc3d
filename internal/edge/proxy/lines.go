package proxy

import (
	"bytes"
	"errors"
	"math"
)

var (
	errLine    = errors.New("a line ends in a bare line feed")
	errLengths = errors.New("the length of a body cannot be read")
	errExcess  = errors.New("the lines between chunks are far longer than the chunks")
	errControl = errors.New("the line of a chunk has a control character, or a trailer has one or an invalid name")
)

// maxExcess is how far the lines of chunks may exceed 16 bytes and twice the chunk each: extensions
// would have no limit, because no limit of a body counts them.
const maxExcess = 16 << 10

// lines follows the requests in a client's bytes to catch what fasthttp accepts and does
// not reveal: a bare line feed after a request line, in a chunk's line or in a trailer, and
// characters there after which another program may see one more line, and so another request.
type lines struct {
	part  linePart
	left  int64 // of a body or chunk that precedes anything else
	begun []byte
	buf   [64]byte // of begun: the start of a line that came in several reads
	long  bool     // the line did not fit in it
	cr    bool     // its last byte is a carriage return
	named bool     // a trailer's name is complete

	requests uint64 // begun
	length   int64  // of the request's body
	chunked  bool
	excess   int64 // of the lines of its chunks
	chunk    int64 // the size of the latest
	arrived  int64 // bytes of its body in chunks that have arrived to their ends
}

// linePart says what the next line is.
type linePart uint8

const (
	requestLine linePart = iota
	headerLine
	chunkLine
	chunkEnd
	trailerLine
)

// follow reads b. At the first fault it returns how much of b precedes it.
func (l *lines) follow(b []byte) (int, error) {
	for at := 0; at < len(b); {
		if l.left > 0 {
			n := min(l.left, int64(len(b)-at))
			l.left -= n
			at += int(n)
			continue
		}
		rest := b[at:]
		end := bytes.IndexByte(rest, '\n')
		if l.part == chunkLine || l.part == trailerLine {
			part := rest
			if end >= 0 {
				part = rest[:end]
			}
			if n, err := l.framing(part); err != nil {
				return at + n, err
			}
		}
		if end < 0 {
			l.keep(rest)
			return len(b), nil
		}
		if cr := l.cr && end == 0 || end > 0 && rest[end-1] == '\r'; !cr {
			return at + end, errLine
		}
		line := rest[:end]
		if l.long || len(l.begun) > 0 {
			l.keep(line)
			line = l.begun
		}
		if err := l.end(bytes.TrimSuffix(line, []byte("\r"))); err != nil {
			return at, err
		}
		l.begun, l.long, l.cr, l.named = l.buf[:0], false, false, false
		at += end + 1
	}
	return len(b), nil
}

// framing checks part of the line of a chunk or of a trailer, without its line feed. It returns how
// much of it precedes a fault.
func (l *lines) framing(part []byte) (n int, err error) {
	n = len(part)
	for i, cr := 0, l.cr; i < len(part); i++ {
		c := part[i]
		bad := cr || c < ' ' && c != '\t' && c != '\r' || c == 0x7f
		if cr = c == '\r'; l.part == trailerLine && !l.named && !cr {
			l.named = c == ':' && i+len(l.begun) > 0
			bad = bad || !l.named && nameBytes[c] == badName
		}
		if bad {
			n, err = i, errControl
			break
		}
	}
	if l.part == trailerLine {
		return n, err
	}
	if l.excess += int64(n); l.excess > maxExcess {
		return n - int(l.excess-maxExcess), errExcess
	}
	return n, err
}

// keep remembers as much of an unfinished line as end needs.
func (l *lines) keep(b []byte) {
	if len(b) == 0 {
		return
	}
	if len(l.begun) == 0 {
		l.begun = l.buf[:0]
	}
	n := min(len(b), len(l.buf)-len(l.begun))
	l.begun = append(l.begun, b[:n]...)
	l.long = l.long || n < len(b)
	l.cr = b[len(b)-1] == '\r'
}

// end processes a whole line, or the beginning of a long one.
func (l *lines) end(line []byte) error {
	blank := len(line) == 0 && !l.long
	switch l.part {
	case requestLine:
		if !blank { // as fasthttp, which skips blank lines before a request
			l.part, l.length, l.chunked, l.excess, l.arrived = headerLine, 0, false, 0, 0
			l.requests++
		}
	case headerLine:
		if !blank {
			return l.header(line)
		}
		switch {
		case l.chunked:
			l.part = chunkLine
		default:
			l.part, l.left = requestLine, l.length
		}
	case chunkLine:
		size, ok := chunkSize(line)
		if !ok {
			return errLengths
		}
		l.chunk, l.left, l.part = size, size, chunkEnd
		l.excess = max(0, l.excess-16-2*min(size, maxExcess))
		if size == 0 {
			l.part = trailerLine
		}
	case chunkEnd:
		if !blank {
			return errLengths
		}
		l.part = chunkLine
		l.arrived += l.chunk
	case trailerLine:
		switch {
		case blank:
			l.part = requestLine
		case !l.named:
			return errControl
		}
	}
	return nil
}

// beyond reports whether anything was read after the first n requests.
func (l *lines) beyond(n uint64) bool {
	return l.requests != n || l.part != requestLine || l.left > 0 || len(l.begun) > 0
}

// header determines the body's length. It looks at few lines more closely than at their first
// letter.
func (l *lines) header(line []byte) error {
	if c := line[0] | 0x20; c != 'c' && c != 't' {
		return nil
	}
	name, value, _ := bytes.Cut(line, []byte(":"))
	switch classify(name) {
	case transferEncoding:
		l.chunked = true
	case contentLength:
		l.length = 0
		value = bytes.Trim(value, " \t")
		for _, c := range value {
			if c < '0' || c > '9' || l.length > math.MaxInt64/10-1 {
				return errLengths
			}
			l.length = l.length*10 + int64(c-'0')
		}
		if l.long || len(value) == 0 || len(value) > 19 {
			return errLengths
		}
	}
	return nil
}

// chunkSize reads the number at the beginning of a chunk's line.
func chunkSize(line []byte) (size int64, ok bool) {
	digits := 0
	for digits < len(line) && hexDigit(line[digits]) >= 0 {
		size = size<<4 | hexDigit(line[digits])
		if digits++; digits > 15 {
			return 0, false
		}
	}
	return size, digits > 0
}

func hexDigit(c byte) int64 {
	switch {
	case c >= '0' && c <= '9':
		return int64(c - '0')
	case c|0x20 >= 'a' && c|0x20 <= 'f':
		return int64(c|0x20-'a') + 10
	default:
		return -1
	}
}
