package proxy

import (
	"bytes"
	"errors"

	"github.com/valyala/fasthttp"
)

var (
	errBareLF     = errors.New("a header line ends in a bare line feed")
	errFolded     = errors.New("a header is folded over two lines")
	errTwoLengths = errors.New("both Content-Length and Transfer-Encoding")
	errEncoding   = errors.New("a Transfer-Encoding other than chunked")
	errName       = errors.New("a header's name has a character that no name may have")
)

// Form is what CheckFraming found in a request's header.
type Form struct {
	found   fields
	checked bool
}

// Names reports whether Connection names headers, which are not forwarded; see EachNamed.
func (f Form) Names() bool { return f.found&named != 0 }

// Closes reports whether Connection says close, in any letter case and alongside
// anything else. fasthttp recognizes only one form of it.
func (f Form) Closes() bool { return f.found&closes != 0 }

// Upgrades reports whether Connection names Upgrade.
func (f Form) Upgrades() bool { return f.found&upgrades != 0 }

// Demands reports whether Expect asks for anything but 100-continue.
func (f Form) Demands() bool { return f.found&demands != 0 }

// Unusual reports whether a header's name has characters other than letters, digits and
// hyphens; see EachUnusual.
func (f Form) Unusual() bool { return f.found&unusual != 0 }

// CheckFraming reports what makes a request's header ambiguous, so that another program
// could see different requests in the same bytes, and what fasthttp lets pass: a folded
// line, a bare line feed, a space within a name, Content-Length alongside
// Transfer-Encoding, an encoding other than chunked. Answer such a request with 400 and
// Connection: close. Forward runs the same check unless Via has the Form.
func CheckFraming(h *fasthttp.RequestHeader) (Form, error) {
	found, err := scan(h.RawHeaders())
	return Form{found, true}, err
}

// EachUnusual calls f for the name of each header that has characters other than
// letters, digits and hyphens.
func EachUnusual(h *fasthttp.RequestHeader, f func(name []byte)) {
	for line := range bytes.Lines(h.RawHeaders()) {
		name, _, _ := bytes.Cut(line, []byte(":"))
		if checkName(name) == unusual {
			f(name)
		}
	}
}

// scan finds the special headers in a raw header.
func scan(raw []byte) (found fields, err error) {
	for len(raw) > 0 {
		end := bytes.IndexByte(raw, '\n')
		if end < 0 {
			end = len(raw) - 1
		}
		line := raw[:end]
		raw = raw[end+1:]
		if end == 0 || line[end-1] != '\r' {
			return found, errBareLF
		}
		if end == 1 {
			break
		}
		if line[0] == ' ' || line[0] == '\t' {
			return found, errFolded
		}
		colon := bytes.IndexByte(line, ':')
		if colon <= 0 {
			return found, errName
		}
		form := checkName(line[:colon])
		if form == badName {
			return found, errName
		}
		bit := classify(line[:colon])
		switch bit {
		case connection:
			bit |= tokens(line[colon+1:])
		case transferEncoding:
			if !bytes.EqualFold(bytes.TrimSpace(line[colon+1:]), []byte("chunked")) {
				return found, errEncoding
			}
		case expect:
			if !bytes.EqualFold(bytes.TrimSpace(line[colon+1:]), []byte("100-continue")) {
				bit |= demands
			}
		}
		found |= bit | form
	}
	if found&(contentLength|transferEncoding) == contentLength|transferEncoding {
		return found, errTwoLengths
	}
	return found, nil
}

const badName = allFields + 1

// nameBytes says how each byte classifies a name (RFC 9110, 5.6.2).
var nameBytes = func() (table [256]fields) {
	for c := range table {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '-':
		case bytes.IndexByte([]byte("!#$%&'*+.^_`|~"), byte(c)) >= 0:
			table[c] = unusual
		default:
			table[c] = badName
		}
	}
	return table
}()

// checkName returns unusual, badName or 0.
func checkName(name []byte) (form fields) {
	for _, c := range name {
		form |= nameBytes[c]
	}
	if form&badName != 0 {
		return badName
	}
	return form
}
