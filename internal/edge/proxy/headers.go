package proxy

import (
	"bytes"
	"errors"
	"fmt"
	"math/bits"

	"github.com/valyala/fasthttp"
)

// fields is a set of the headers that this package handles specially.
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
	via
	cdnLoop
	xOriginalURL // by which some origins replace the path, as Zend and older Symfony
	xRewriteURL
	connectionNames   // a Connection line names another header
	connectionUpgrade // a Connection line names Upgrade
	connectionClose   // a Connection line says close
	unsupportedExpect // Expect has another value than 100-continue
	unusualName       // a name has characters other than letters, digits and hyphens

	hopByHop  = connection | keepAlive | proxyAuthenticate | proxyAuthorization | proxyConnection | te | trailer | upgrade
	allFields = unusualName<<1 - 1
)

// names holds the fields' canonical names, indexed by the number of their bit. It is
// never written to. Use the method name.
var names = [...][]byte{
	[]byte("Connection"), []byte("Keep-Alive"), []byte("Proxy-Authenticate"), []byte("Proxy-Authorization"),
	[]byte("Proxy-Connection"), []byte("Te"), []byte("Trailer"), []byte("Upgrade"), []byte("Expect"),
	[]byte("Forwarded"), []byte("X-Real-Ip"), []byte("X-Forwarded-For"), []byte("X-Forwarded-Host"),
	[]byte("X-Forwarded-Proto"), []byte("X-Forwarded-Port"), []byte("Content-Length"), []byte("Transfer-Encoding"),
	[]byte("Via"), []byte("Cdn-Loop"), []byte("X-Original-Url"), []byte("X-Rewrite-Url"),
}

// name returns the canonical name of the first header in f.
func (f fields) name() []byte { return names[bits.TrailingZeros32(uint32(f))] }

var (
	protoHTTP  = []byte("http")
	protoHTTPS = []byte("https")
)

// classify returns the bit of a header's name in any letter case, 0 for the many that
// pass unchanged. It compares lengths first, so most names cost one comparison of
// numbers.
func classify(name []byte) fields {
	switch len(name) {
	case 2:
		return match(name, te)
	case 3:
		return match(name, via)
	case 6:
		return match(name, expect)
	case 7:
		return match(name, trailer) | match(name, upgrade)
	case 8:
		return match(name, cdnLoop)
	case 9:
		return match(name, forwarded) | match(name, xRealIP)
	case 10:
		return match(name, connection) | match(name, keepAlive)
	case 13:
		return match(name, xRewriteURL)
	case 14:
		return match(name, contentLength) | match(name, xOriginalURL)
	case 15:
		return match(name, xForwardedFor)
	case 16:
		return match(name, proxyConnection) | match(name, xForwardedHost) | match(name, xForwardedPort)
	case 17:
		return match(name, xForwardedProto) | match(name, transferEncoding)
	case 18:
		return match(name, proxyAuthenticate)
	case 19:
		return match(name, proxyAuthorization)
	}
	return 0
}

func match(name []byte, header fields) fields {
	if canonical := header.name(); name[0]|0x20 == canonical[0]|0x20 && bytes.EqualFold(name, canonical) {
		return header
	}
	return 0
}

// prepare turns the client's request into the upstream's.
func (p *Pool) prepare(ctx *fasthttp.RequestCtx, from *ForwardOptions) *Error {
	h := &ctx.Request.Header
	found := from.Scan.found
	if !from.Scan.checked {
		form, err := CheckFraming(h)
		if err != nil {
			return &Error{Kind: KindBadRequest, Err: err}
		}
		found = form.found
	}
	if len(h.RawHeaders()) == 0 {
		found = allFields // a request made by hand: its headers are unknown
	}
	if err := OriginForm(h, p.Host()); err != nil {
		return err
	}
	h.SetNoDefaultContentType(true)

	if found&connectionNames != 0 {
		dropNamed(h)
	}
	var early error
	if from.upgrade, early = p.upgradeTo(ctx, found); early != nil {
		return &Error{Kind: KindBadRequest, Err: early}
	}
	from.trailers = found&te != 0 && bytes.Contains(h.PeekCanonical(te.name()), []byte("trailers"))
	drop := found & (hopByHop | expect) // fasthttp has already answered the Expect
	if !from.Trusted {
		drop |= found & (forwarded | xRealIP | xForwardedHost | xForwardedProto | xForwardedPort | xOriginalURL | xRewriteURL)
		found &^= drop
	}
	var buf [256]byte
	list := buf[:0]
	if found&xForwardedFor != 0 {
		if from.Trusted {
			for _, v := range h.PeekAll("X-Forwarded-For") {
				if len(v) > 0 {
					list = append(append(list, v...), ", "...)
				}
			}
		}
		drop |= xForwardedFor
	}
	for ; drop != 0; drop &= drop - 1 {
		h.DelBytes(drop.name())
	}

	if from.upgrade != nil {
		h.SetCanonical(connection.name(), valueUpgrade)
		h.SetCanonical(upgrade.name(), from.upgrade)
	}
	if from.Peer.IsValid() {
		list = from.Peer.Unmap().AppendTo(list)
	} else {
		list = bytes.TrimSuffix(list, []byte(", "))
	}
	if len(list) > 0 {
		h.SetCanonical(xForwardedFor.name(), list)
	}
	if found&xForwardedHost == 0 || len(h.PeekCanonical(xForwardedHost.name())) == 0 {
		h.SetCanonical(xForwardedHost.name(), h.Host())
	}
	if found&xForwardedProto == 0 || len(h.PeekCanonical(xForwardedProto.name())) == 0 {
		proto := protoHTTP
		if from.TLS {
			proto = protoHTTPS
		}
		h.SetCanonical(xForwardedProto.name(), proto)
	}
	p.cfg.Loop.pass(h)
	return nil
}

// OriginForm changes an absolute request target into the path that an origin expects.
// Its host then replaces the Host header (RFC 9112, 3.2.2). Every other target stays
// byte for byte as the client sent it. A request of HTTP/1.0 without a host gets this one.
func OriginForm(h *fasthttp.RequestHeader, host string) *Error {
	if bytes.EqualFold(h.Method(), []byte(fasthttp.MethodConnect)) { // some read methods so
		return &Error{Kind: KindUnsupported, Err: errors.New("CONNECT: this is not a forward proxy")}
	}
	target := h.RequestURI()
	if len(target) > 0 && target[0] == '/' || string(target) == "*" {
		if len(h.Host()) == 0 {
			h.SetHost(host)
		}
		return nil
	}
	_, rest, ok := bytes.Cut(target, []byte("://"))
	if !ok {
		return &Error{Kind: KindBadRequest, Err: fmt.Errorf("request target %q", target)}
	}
	authority, path := rest, []byte("/")
	if i := bytes.IndexAny(rest, "/?#"); i >= 0 {
		authority, path = rest[:i], rest[i:]
		if path[0] != '/' {
			path = append([]byte("/"), path...)
		}
	}
	authority = authority[bytes.LastIndexByte(authority, '@')+1:]
	if len(authority) == 0 {
		return &Error{Kind: KindBadRequest, Err: fmt.Errorf("request target %q: no host", target)}
	}
	h.SetHostBytes(authority)
	h.SetRequestURIBytes(path)
	return nil
}
