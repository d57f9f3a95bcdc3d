package replay

import (
	"bytes"
	"fmt"
	"net/netip"
	"strconv"

	"golang.org/x/net/http/httpguts"
)

// parser reads lines into entries.
type parser struct {
	config *Config
	// Most lines have the time of the line before.
	stamp   []byte
	stamped int64
	line    jsonLine
}

// parse reads a line, which belongs to the batch. An error says why it cannot be read; e is
// then undefined.
func (p *parser) parse(line []byte, e *entry, text *arena) error {
	*e = entry{duration: -1, headers: e.headers[:0]}
	e.trusted = p.config.Trusted
	format := p.config.Format
	if format == Auto {
		format = Combined
		if line[0] == '{' {
			format = JSONLines
		}
	}
	read := p.combined
	if format == JSONLines {
		read = p.json
	}
	if err := read(line, e, text); err != nil {
		return err
	}
	if len(e.host) == 0 {
		e.host = []byte(p.config.Host)
	}
	if h := p.config.TierHeader; h != "" && len(e.tier) == 0 && e.trusted {
		if tier, n := e.Header(h); n == 1 { // of two, one could be the proxy's and one the client's
			e.tier = tier
		}
	}
	return nil
}

// statusOf parses the status of an answer, or returns 0.
func statusOf(text []byte) int {
	n, err := strconv.Atoi(string(text))
	if err != nil || n < 100 || n > 999 {
		return 0
	}
	return n
}

// requestLine splits METHOD TARGET HTTP/1.1, of which a log may lack the last part.
func requestLine(line []byte) (method, target []byte, err error) {
	method, target, _ = bytes.Cut(line, []byte(" "))
	if i := bytes.LastIndexByte(target, ' '); i >= 0 && bytes.HasPrefix(target[i+1:], []byte("HTTP/")) {
		target = target[:i]
	}
	if !isToken(method) || len(target) == 0 || bytes.IndexByte(target, ' ') >= 0 {
		return nil, nil, fmt.Errorf("request %s is not METHOD TARGET HTTP/1.1; nodes answer it with 400", quote(line))
	}
	return method, target, nil
}

// isToken reports whether s could be a method (RFC 9110, 5.6.2).
func isToken(s []byte) bool { return httpguts.ValidHeaderFieldName(string(s)) }

// address parses an IP address, optionally with a port or in brackets.
func address(text []byte) (netip.Addr, error) {
	const longest = 64 // an IPv6 address with brackets, zone and port is shorter
	if len(text) > longest {
		return netip.Addr{}, fmt.Errorf("client %s is not an IP address", quote(text))
	}
	s := string(text)
	a, err := netip.ParseAddr(s)
	if err != nil {
		var withPort netip.AddrPort
		if withPort, err = netip.ParseAddrPort(s); err == nil {
			a = withPort.Addr()
		} else if n := len(s); n > 2 && s[0] == '[' && s[n-1] == ']' {
			a, err = netip.ParseAddr(s[1 : n-1])
		}
	}
	if err != nil {
		return netip.Addr{}, fmt.Errorf("client %s is not an IP address", quote(text))
	}
	return a.WithZone("").Unmap(), nil
}

// quote quotes part of a log: a terminal must not interpret what a client sent.
func quote(b []byte) string {
	const longest = 60
	if len(b) > longest {
		return strconv.Quote(string(b[:longest])) + "…"
	}
	return strconv.Quote(string(b))
}
