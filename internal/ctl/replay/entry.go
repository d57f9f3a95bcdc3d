package replay

import (
	"net/netip"

	"github.com/weir-edge/weir/pkg/limiter/rules"
)

// entry is one request of the log. Its bytes belong to the batch.
type entry struct {
	line     int64
	time     int64 // Unix microseconds
	decided  int64 // the clock when it came
	duration int64 // microseconds; -1 if unknown
	client   netip.Addr
	host     []byte
	path     []byte // as sent, with a slash in front
	query    []byte // as sent
	method   []byte
	tier     []byte
	status   int // of the answer; 0 if unknown
	trusted  bool
	headers  []header
}

type header struct{ name, value []byte }

func (e *entry) Client() netip.Addr { return e.client }
func (e *entry) Host() []byte       { return e.host }
func (e *entry) Method() []byte     { return e.method }
func (e *entry) Tier() []byte       { return e.tier }
func (e *entry) Risk() string       { return "" } // no log states it
func (e *entry) Trusted() bool      { return e.trusted }

func (e *entry) Header(name string) (value []byte, n int) {
	// For these, a node keeps only the last value, and no empty one.
	single := name == "Host" || name == "User-Agent" || name == "Content-Type"
	for i := range e.headers {
		if !equalFold(e.headers[i].name, name) {
			continue
		}
		if n++; n == 1 || single {
			value = e.headers[i].value
		}
	}
	if single {
		if n == 0 && name == "Host" {
			value = e.host
		}
		n = min(len(value), 1)
	}
	return value, n
}

// equalFold compares header names: ASCII letters in any case.
func equalFold(a []byte, b string) bool {
	if len(a) != len(b) {
		return false
	}
	for i, c := range a {
		if c != b[i] && (c|0x20 != b[i]|0x20 || c|0x20 < 'a' || c|0x20 > 'z') {
			return false
		}
	}
	return true
}

// Cookie reads the Cookie headers as a node does.
func (e *entry) Cookie(name string) (value []byte, n int) {
	for i := range e.headers {
		if equalFold(e.headers[i].name, "Cookie") {
			value, n = rules.FindCookie(e.headers[i].value, name, value, n)
		}
	}
	return value, n
}
