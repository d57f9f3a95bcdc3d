// Package httpconns bounds the connections of a server for operators, Prometheus and health
// checks.
package httpconns

import (
	"container/list"
	"crypto/tls"
	"net"
	"net/http"
	"sync"
)

// Max is how many connections a server may have: far more than its callers need, and few
// enough to harm nothing else.
const Max = 256

// Bound bounds the connections of one server. When there are too many, the one that has waited
// longest for a request is closed: idle connections, which need no token, must not lock
// operators out.
type Bound struct {
	mu      sync.Mutex
	waiting *list.List // of net.Conn, the longest first
	open    map[net.Conn]*list.Element
}

// New returns the bound of a new server.
func New() *Bound {
	return &Bound{waiting: list.New(), open: map[net.Conn]*list.Element{}}
}

// Changed is the server's ConnState.
func (b *Bound) Changed(c net.Conn, state http.ConnState) {
	if victim := b.note(c, state); victim != nil {
		if t, ok := victim.(*tls.Conn); ok {
			victim = t.NetConn() // TLS would wait for its peer to acknowledge the close
		}
		_ = victim.Close()
	}
}

// note returns the connection to close, if any: c itself if all others are active.
func (b *Bound) note(c net.Conn, state http.ConnState) (victim net.Conn) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if e := b.open[c]; e != nil {
		b.waiting.Remove(e)
	}
	switch state {
	case http.StateNew, http.StateIdle:
		if state == http.StateNew && len(b.open) >= Max {
			victim = c
			if oldest := b.waiting.Front(); oldest != nil {
				victim = b.waiting.Remove(oldest).(net.Conn)
			}
			delete(b.open, victim)
		}
		if victim != c {
			b.open[c] = b.waiting.PushBack(c)
		}
	case http.StateActive:
		b.open[c] = nil
	default: // closed, or hijacked, which no handler does
		delete(b.open, c)
	}
	return victim
}
