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
	errOdd        = errors.New("the Connection header names more than 100 headers, or as many names have characters other than letters, digits and hyphens")
)

// maxOdd bounds the headers that may have to be removed one by one, each at the cost of all headers.
const maxOdd = 100

// HeaderScan is what CheckFraming found in a request's header.
type HeaderScan struct {
	found   fields
	checked bool
	names   nameSet
}

// nameSet has a bit for the length and the outer letters of each header's name, in any letter
// case. It makes asking for an absent header cost next to nothing.
type nameSet uint64

const anyName = ^nameSet(0)

func nameBit[T []byte | string](name T) nameSet {
	return 1 << ((uint(len(name)) + 5*uint(name[0]|0x20) + 11*uint(name[len(name)-1]|0x20)) % 64)
}

// DefinitelyLacks reports that the request has no header of that canonical name. It may have none even if
// DefinitelyLacks returns false.
func (f HeaderScan) DefinitelyLacks(name string) bool {
	switch name {
	case "", "Host", "Connection", "Content-Length", "Trailer":
		return false // fasthttp has values of these that are not in the header as received
	}
	return f.checked && f.names&nameBit(name) == 0
}

// ConnectionNamesHeaders reports whether Connection names headers, which are not forwarded; see EachConnectionHeader.
func (f HeaderScan) ConnectionNamesHeaders() bool { return f.found&connectionNames != 0 }

// ConnectionClose reports whether Connection says close, in any letter case and alongside
// anything else. fasthttp recognizes only one form of it.
func (f HeaderScan) ConnectionClose() bool { return f.found&connectionClose != 0 }

// ConnectionUpgrade reports whether Connection names Upgrade.
func (f HeaderScan) ConnectionUpgrade() bool { return f.found&connectionUpgrade != 0 }

// UnsupportedExpect reports whether Expect asks for anything but 100-continue.
func (f HeaderScan) UnsupportedExpect() bool { return f.found&unsupportedExpect != 0 }

// HasUnusualName reports whether a header's name has characters other than letters, digits and
// hyphens; see EachUnusualName.
func (f HeaderScan) HasUnusualName() bool { return f.found&unusualName != 0 }

// CheckFraming reports what makes a request's header ambiguous, so that another program
// could see different requests in the same bytes, and what fasthttp lets pass: a folded
// line, a bare line feed, a space within a name, Content-Length alongside
// Transfer-Encoding, an encoding other than chunked. Answer such a request with 400, and
// end with CloseUnlessReusable(ctx, false). Forward runs the same check unless ForwardOptions has the Scan.
func CheckFraming(h *fasthttp.RequestHeader) (HeaderScan, error) {
	raw := h.RawHeaders()
	found, names, err := scan(raw)
	if err != nil || len(raw) == 0 { // not read to the end, or made by hand
		names = anyName
	}
	return HeaderScan{found, true, names}, err
}

// EachUnusualName calls f for the name of each header that has characters other than
// letters, digits and hyphens.
func EachUnusualName(h *fasthttp.RequestHeader, f func(name []byte)) {
	for line := range bytes.Lines(h.RawHeaders()) {
		name, _, _ := bytes.Cut(line, []byte(":"))
		if checkName(name) == unusualName {
			f(name)
		}
	}
}

// AppendSent appends the values of a header as received. fasthttp keeps only one User-Agent
// and one Content-Type.
func AppendSent(dst [][]byte, h *fasthttp.RequestHeader, name string) [][]byte {
	for line := range bytes.Lines(h.RawHeaders()) {
		if len(line) > len(name) && line[len(name)] == ':' && bytes.EqualFold(line[:len(name)], []byte(name)) {
			dst = append(dst, bytes.Trim(line[len(name)+1:], " \t\r\n"))
		}
	}
	return dst
}

// scan finds the special headers in a raw header.
func scan(raw []byte) (found fields, names nameSet, err error) {
	for odd := 0; len(raw) > 0; {
		end := bytes.IndexByte(raw, '\n')
		if end < 0 {
			end = len(raw) - 1
		}
		line := raw[:end]
		raw = raw[end+1:]
		if end == 0 || line[end-1] != '\r' {
			return found, names, errBareLF
		}
		if end == 1 {
			break
		}
		if line[0] == ' ' || line[0] == '\t' {
			return found, names, errFolded
		}
		colon := bytes.IndexByte(line, ':')
		if colon <= 0 {
			return found, names, errName
		}
		form := checkName(line[:colon])
		if form == badName {
			return found, names, errName
		}
		bit := classify(line[:colon])
		switch bit {
		case connection:
			listed, n := tokens(line[colon+1:])
			bit |= listed
			odd += n
		case transferEncoding:
			if !bytes.EqualFold(bytes.TrimSpace(line[colon+1:]), []byte("chunked")) {
				return found, names, errEncoding
			}
		case expect:
			if !bytes.EqualFold(bytes.TrimSpace(line[colon+1:]), []byte("100-continue")) {
				bit |= unsupportedExpect
			}
		}
		if form == unusualName {
			odd++
		}
		if odd > maxOdd {
			return found, names, errOdd
		}
		found |= bit | form
		names |= nameBit(line[:colon])
	}
	if found&(contentLength|transferEncoding) == contentLength|transferEncoding {
		return found, names, errTwoLengths
	}
	return found, names, nil
}

const badName = allFields + 1

// nameBytes says how each byte classifies a name (RFC 9110, 5.6.2).
var nameBytes = func() (table [256]fields) {
	for c := range table {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '-':
		case bytes.IndexByte([]byte("!#$%&'*+.^_`|~"), byte(c)) >= 0:
			table[c] = unusualName
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
