package decide

import (
	"bytes"
	"net/netip"
	"unsafe"
)

// ValidHost reports whether every program reads a request's host, with its port, alike: as
// a name of the usual characters, an IPv4 address, or an IPv6 address in brackets. None
// is valid: a gateway may forward that.
func ValidHost(host []byte) bool {
	if len(host) > 0 && host[0] == '[' {
		end := bytes.IndexByte(host, ']')
		if end < 0 {
			return false
		}
		inner := host[1:end]
		a, err := netip.ParseAddr(unsafe.String(unsafe.SliceData(inner), len(inner))) // not kept
		return err == nil && a.Is6() && a.Zone() == "" && (end == len(host)-1 || validPort(host[end+1:]))
	}
	for i, c := range host {
		switch {
		case plain[c]:
		case c == '.':
			if i > 0 && host[i-1] == '.' { // a.example.. is a.example to some
				return false
			}
		case c == ':':
			return i > 0 && validPort(host[i:])
		default:
			return false
		}
	}
	return true
}

// plain are the bytes that may stand anywhere in a name.
var plain = func() (t [256]bool) {
	for c := range t {
		t[c] = c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_'
	}
	return t
}()

// validPort reads a colon and what follows; a port may be left out.
func validPort(port []byte) bool {
	if port[0] != ':' || len(port) > 6 {
		return false
	}
	n := 0
	for _, c := range port[1:] {
		if c < '0' || c > '9' {
			return false
		}
		n = 10*n + int(c-'0')
	}
	return n < 1<<16
}
