package proxy

import (
	"bytes"
	"unicode"

	"github.com/valyala/fasthttp"
)

// tokens reads a Connection line, and counts the headers that it names.
func tokens(list []byte) (found fields, names int) {
	for len(list) > 0 {
		token, rest, _ := bytes.Cut(list, []byte(","))
		list = rest
		switch token = bytes.TrimSpace(token); {
		case len(token) == 0:
		case bytes.EqualFold(token, []byte("close")):
			found |= connectionClose
		case bytes.EqualFold(token, valueUpgrade):
			found |= connectionUpgrade
		case !isUsual(token):
			found |= connectionNames
			names++
		}
	}
	return found, names
}

// dropNamed removes the headers that Connection names, except those that would change
// where the request goes, how it is framed or what weir says about it.
func dropNamed(h *fasthttp.RequestHeader) {
	const kept = contentLength | transferEncoding | xForwardedFor | xForwardedHost | xForwardedProto
	EachConnectionHeader(h, func(name []byte) {
		if classify(name)&kept == 0 && !bytes.EqualFold(name, []byte("Host")) {
			h.DelBytes(name)
		}
	})
}

// EachConnectionHeader calls f for each header that the request's Connection lines name. Those are
// not forwarded, so a caller that has decided anything by one must refuse the request:
// the origin would not see it.
func EachConnectionHeader(h *fasthttp.RequestHeader, f func(name []byte)) {
	// Use the raw header: fasthttp hides the other Connection lines of a request that
	// also says "Connection: close".
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
		if token = bytes.TrimSpace(token); len(token) > 0 && !isUsual(token) {
			f(token)
		}
	}
}

// isUsual reports the three usual tokens of Connection, which name only headers that
// are removed anyway.
func isUsual(token []byte) bool {
	return bytes.EqualFold(token, []byte("close")) || bytes.EqualFold(token, []byte("keep-alive")) || bytes.EqualFold(token, valueUpgrade)
}

// stripResponse removes the upstream's hop-by-hop headers, what is no header or reason, and
// reports whether the upstream wants the connection closed.
func stripResponse(h *fasthttp.ResponseHeader) (closing bool) {
	closing = h.ConnectionClose()
	if bytes.ContainsFunc(h.StatusMessage(), unicode.IsControl) {
		h.SetStatusMessage(nil)
	}
	var found fields
	var odd [][]byte
	named := false
	for name, value := range h.All() {
		switch bit := classify(name); bit {
		case 0:
			if bytes.IndexByte(name, ' ') >= 0 || bytes.IndexByte(name, '\t') >= 0 { // fasthttp refuses the rest
				odd = append(odd, bytes.Clone(name))
			}
		case connection:
			found |= bit
			eachToken(value, func([]byte) { named = true })
			closing = closing || containsClose(value)
		default:
			found |= bit
		}
	}
	for _, name := range odd {
		h.DelBytes(name)
	}
	if named {
		// Copy the values: fasthttp reuses them as headers are removed.
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
	for found &= hopByHop; found != 0; found &= found - 1 {
		h.DelBytes(found.name())
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
