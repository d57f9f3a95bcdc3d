package proxy

import (
	"bytes"
	"crypto/rand"

	"github.com/valyala/fasthttp"
)

// Loop finds requests that have passed this node before, by a mark that it leaves in the
// Via header (RFC 9110, 7.6.3) or in CDN-Loop (RFC 8586). The zero value does nothing.
type Loop struct {
	bit    fields
	header string
	name   []byte // this node's entry in the header
	mark   []byte
}

// NewLoop returns a Loop that uses header, Via or CDN-Loop in any letter case. Each call
// makes a new name, so no two nodes share one.
func NewLoop(header string) Loop {
	l := Loop{name: []byte("weir-" + rand.Text()[:8])}
	if l.bit = classify([]byte(header)); l.bit == via {
		l.header, l.mark = string(via.name()), append([]byte("1.1 "), l.name...)
	} else {
		l.header, l.mark = string(cdnLoop.name()), l.name
	}
	return l
}

// Seen reports whether the request has passed this node before.
func (l *Loop) Seen(h *fasthttp.RequestHeader, f HeaderScan) bool {
	if f.found&l.bit == 0 {
		return false
	}
	for _, list := range h.PeekAll(l.header) {
		if bytes.Contains(list, l.name) {
			return true
		}
	}
	return false
}

// pass marks a forwarded request.
func (l *Loop) pass(h *fasthttp.RequestHeader) {
	if l.bit != 0 {
		h.AddBytesV(l.header, l.mark)
	}
}
