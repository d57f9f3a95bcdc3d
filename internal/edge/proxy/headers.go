package proxy

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/valyala/fasthttp"
)

// fields is a set of the headers that this package treats specially.
type fields uint32

const (
	connection fields = 1 << iota
	keepAlive
	proxyAuthenticate
	proxyAuthorization
	proxyConnection
	te
	trailer
	upgrade
	expect
	forwarded
	xRealIP
	xForwardedFor
	xForwardedHost
	xForwardedProto
	xForwardedPort
	contentLength
	transferEncoding
	named   // a Connection line names another header
	closes  // a Connection line says close
	demands // Expect has another value than 100-continue
	unusual // a name has other characters than letters, digits and hyphens

	hopByHop  = connection | keepAlive | proxyAuthenticate | proxyAuthorization | proxyConnection | te | trailer | upgrade
	allFields = unusual<<1 - 1
)

// names holds the fields' canonical names, each at the number of its bit. It
// is never written to.
var names = [...][]byte{
	[]byte("Connection"), []byte("Keep-Alive"), []byte("Proxy-Authenticate"), []byte("Proxy-Authorization"),
	[]byte("Proxy-Connection"), []byte("Te"), []byte("Trailer"), []byte("Upgrade"), []byte("Expect"),
	[]byte("Forwarded"), []byte("X-Real-Ip"), []byte("X-Forwarded-For"), []byte("X-Forwarded-Host"),
	[]byte("X-Forwarded-Proto"), []byte("X-Forwarded-Port"), []byte("Content-Length"), []byte("Transfer-Encoding"),
}

const (
	nameXForwardedFor   = 11
	nameXForwardedHost  = 12
	nameXForwardedProto = 13
)

var (
	protoHTTP  = []byte("http")
	protoHTTPS = []byte("https")
)

// classify returns the bit of a header's name in any letter case, 0 for the
// many that pass as they are. Names are told apart by length first, so most
// cost one comparison of numbers.
func classify(name []byte) fields {
	switch len(name) {
	case 2:
		return match(name, 5)
	case 6:
		return match(name, 8)
	case 7:
		return match(name, 6) | match(name, 7)
	case 9:
		return match(name, 9) | match(name, 10)
	case 10:
		return match(name, 0) | match(name, 1)
	case 14:
		return match(name, 15)
	case 15:
		return match(name, 11)
	case 16:
		return match(name, 4) | match(name, 12) | match(name, 14)
	case 17:
		return match(name, 13) | match(name, 16)
	case 18:
		return match(name, 2)
	case 19:
		return match(name, 3)
	}
	return 0
}

func match(name []byte, i int) fields {
	if name[0]|0x20 == names[i][0]|0x20 && bytes.EqualFold(name, names[i]) {
		return 1 << i
	}
	return 0
}

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

// Names reports whether Connection names headers, which are not forwarded: see EachNamed.
func (f Form) Names() bool { return f.found&named != 0 }

// Closes reports whether Connection says close, in any letter case and beside anything
// else. fasthttp knows only one form of it.
func (f Form) Closes() bool { return f.found&closes != 0 }

// Demands reports whether Expect asks for anything but 100-continue.
func (f Form) Demands() bool { return f.found&demands != 0 }

// Unusual reports whether a header's name has other characters than letters, digits and
// hyphens: see EachUnusual.
func (f Form) Unusual() bool { return f.found&unusual != 0 }

// CheckFraming reports what makes a request's header ambiguous, so that
// another program on its way might see other requests in the same bytes, and
// which fasthttp lets pass: a folded line, a bare line feed, a space within a
// name, Content-Length beside Transfer-Encoding, an encoding other than
// chunked. The answer to it is 400 and Connection: close. Forward checks the
// same, unless Via has the Form.
func CheckFraming(h *fasthttp.RequestHeader) (Form, error) {
	found, err := scan(h.RawHeaders())
	return Form{found, true}, err
}

// EachUnusual calls f for the name of each header that has other characters than
// letters, digits and hyphens.
func EachUnusual(h *fasthttp.RequestHeader, f func(name []byte)) {
	for line := range bytes.Lines(h.RawHeaders()) {
		name, _, _ := bytes.Cut(line, []byte(":"))
		if checkName(name) == unusual {
			f(name)
		}
	}
}

// scan finds the special headers in a raw header block.
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

// nameBytes says of each byte what it makes of a name (RFC 9110, 5.6.2).
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

// tokens reads a Connection line.
func tokens(list []byte) (found fields) {
	for len(list) > 0 {
		token, rest, _ := bytes.Cut(list, []byte(","))
		list = rest
		switch token = bytes.TrimSpace(token); {
		case len(token) == 0:
		case bytes.EqualFold(token, []byte("close")):
			found |= closes
		case !isPersistence(token):
			found |= named
		}
	}
	return found
}

// prepare turns the client's request into the one for the upstream.
func (p *Pool) prepare(ctx *fasthttp.RequestCtx, via *Via) *Error {
	h := &ctx.Request.Header
	found := via.Form.found
	if !via.Form.checked {
		form, err := CheckFraming(h)
		if err != nil {
			return &Error{Kind: KindBadRequest, Err: err}
		}
		found = form.found
	}
	if len(h.RawHeaders()) == 0 {
		found = allFields // a request made by hand: nothing is known about it
	}
	if err := OriginForm(h); err != nil {
		return err
	}
	h.SetNoDefaultContentType(true)

	if found&named != 0 {
		dropNamed(h)
	}
	drop := found & (hopByHop | expect) // fasthttp has answered the Expect
	if !via.Trusted {
		drop |= found & (forwarded | xRealIP | xForwardedHost | xForwardedProto | xForwardedPort)
		found &^= drop
	}
	var buf [256]byte
	list := buf[:0]
	if found&xForwardedFor != 0 {
		if via.Trusted {
			for _, v := range h.PeekAll("X-Forwarded-For") {
				if len(v) > 0 {
					list = append(append(list, v...), ", "...)
				}
			}
		}
		drop |= xForwardedFor
	}
	for i := 0; drop != 0; i, drop = i+1, drop>>1 {
		if drop&1 != 0 {
			h.DelBytes(names[i])
		}
	}

	if via.Peer.IsValid() {
		list = via.Peer.Unmap().AppendTo(list)
	} else {
		list = bytes.TrimSuffix(list, []byte(", "))
	}
	if len(list) > 0 {
		h.SetCanonical(names[nameXForwardedFor], list)
	}
	if found&xForwardedHost == 0 || len(h.PeekCanonical(names[nameXForwardedHost])) == 0 {
		h.SetCanonical(names[nameXForwardedHost], h.Host())
	}
	if found&xForwardedProto == 0 || len(h.PeekCanonical(names[nameXForwardedProto])) == 0 {
		proto := protoHTTP
		if via.TLS {
			proto = protoHTTPS
		}
		h.SetCanonical(names[nameXForwardedProto], proto)
	}
	return nil
}

// OriginForm changes an absolute request target into the path that an origin
// expects. Its host then counts, not the Host header (RFC 9112, 3.2.2). Every
// other target stays byte for byte as the client sent it.
func OriginForm(h *fasthttp.RequestHeader) *Error {
	if h.IsConnect() {
		return &Error{Kind: KindUnsupported, Err: errors.New("CONNECT: this is not a forward proxy")}
	}
	target := h.RequestURI()
	if len(target) > 0 && target[0] == '/' || string(target) == "*" {
		return nil
	}
	_, rest, ok := bytes.Cut(target, []byte("://"))
	if !ok {
		return &Error{Kind: KindBadRequest, Err: fmt.Errorf("request target %q", target)}
	}
	host, path := rest, []byte("/")
	if i := bytes.IndexAny(rest, "/?#"); i >= 0 {
		host, path = rest[:i], rest[i:]
		if path[0] != '/' {
			path = append([]byte("/"), path...)
		}
	}
	host = host[bytes.LastIndexByte(host, '@')+1:]
	if len(host) == 0 {
		return &Error{Kind: KindBadRequest, Err: fmt.Errorf("request target %q: no host", target)}
	}
	h.SetHostBytes(host)
	h.SetRequestURIBytes(path)
	return nil
}

// dropNamed removes the headers that Connection names, except those which
// would change where the request goes, how it is framed or what weir says
// about it.
func dropNamed(h *fasthttp.RequestHeader) {
	const kept = contentLength | transferEncoding | xForwardedFor | xForwardedHost | xForwardedProto
	EachNamed(h, func(name []byte) {
		if classify(name)&kept == 0 && !bytes.EqualFold(name, []byte("Host")) {
			h.DelBytes(name)
		}
	})
}

// EachNamed calls f for each header that the request's Connection lines name. Those are
// not forwarded; a caller that has decided anything by one of them must refuse the
// request, since the origin would not see it.
func EachNamed(h *fasthttp.RequestHeader, f func(name []byte)) {
	// The raw block, since fasthttp hides the other Connection lines of a
	// request that also says "Connection: close".
	for line := range bytes.Lines(h.RawHeaders()) {
		name, value, _ := bytes.Cut(line, []byte(":"))
		if classify(name) == connection {
			eachToken(value, f)
		}
	}
}

func eachToken(list []byte, f func([]byte)) {
	for len(list) > 0 {
		token, rest, _ := bytes.Cut(list, []byte(","))
		list = rest
		if token = bytes.TrimSpace(token); len(token) > 0 && !isPersistence(token) {
			f(token)
		}
	}
}

// isPersistence reports the two usual tokens of Connection, which name no
// header that is not removed anyhow.
func isPersistence(token []byte) bool {
	return bytes.EqualFold(token, []byte("close")) || bytes.EqualFold(token, []byte("keep-alive"))
}

// stripResponse removes the upstream's hop-by-hop headers, and reports whether
// it wants the connection closed.
func stripResponse(h *fasthttp.ResponseHeader) (closing bool) {
	closing = h.ConnectionClose()
	var found fields
	named := false
	for name, value := range h.All() {
		switch bit := classify(name); bit {
		case 0:
		case connection:
			found |= bit
			eachToken(value, func([]byte) { named = true })
			closing = closing || containsClose(value)
		default:
			found |= bit
		}
	}
	if named {
		// The values are copied: fasthttp reuses them as headers go.
		var all []byte
		for name, value := range h.All() {
			if classify(name) == connection {
				all = append(append(all, value...), ',')
			}
		}
		eachToken(all, func(name []byte) {
			if classify(name)&(contentLength|transferEncoding) == 0 {
				h.DelBytes(name)
			}
		})
	}
	found &= hopByHop
	for i := 0; found != 0; i, found = i+1, found>>1 {
		if found&1 != 0 {
			h.DelBytes(names[i])
		}
	}
	return closing
}

func containsClose(list []byte) (found bool) {
	for len(list) > 0 {
		token, rest, _ := bytes.Cut(list, []byte(","))
		list = rest
		found = found || bytes.EqualFold(bytes.TrimSpace(token), []byte("close"))
	}
	return found
}
