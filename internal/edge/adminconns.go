package edge

import (
	"container/list"
	"crypto/tls"
	"net"
	"net/http"
	"sync"
)

// maxAdminConns bounds the admin side's connections: far more than operators, Prometheus
// and health checks need, and few enough to harm nothing else.
const maxAdminConns = 256

// adminConns bounds the connections of the admin side. When there are too many, the one
// that has waited longest for a request is closed: idle connections, which need no token,
// must not lock operators out.
type adminConns struct {
	mu      sync.Mutex
	waiting *list.List // of net.Conn, the longest first
	open    map[net.Conn]*list.Element
}

func newAdminConns() *adminConns {
	return &adminConns{waiting: list.New(), open: map[net.Conn]*list.Element{}}
}

// changed is an http.Server's ConnState.
func (a *adminConns) changed(c net.Conn, state http.ConnState) {
	if victim := a.note(c, state); victim != nil {
		if t, ok := victim.(*tls.Conn); ok {
			victim = t.NetConn() // TLS would wait for its peer to acknowledge the close
		}
		_ = victim.Close()
	}
}

// note returns the connection to close, if any: c itself if all others are active.
func (a *adminConns) note(c net.Conn, state http.ConnState) (victim net.Conn) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if e := a.open[c]; e != nil {
		a.waiting.Remove(e)
	}
	switch state {
	case http.StateNew, http.StateIdle:
		if state == http.StateNew && len(a.open) >= maxAdminConns {
			victim = c
			if oldest := a.waiting.Front(); oldest != nil {
				victim = a.waiting.Remove(oldest).(net.Conn)
			}
			delete(a.open, victim)
		}
		if victim != c {
			a.open[c] = a.waiting.PushBack(c)
		}
	case http.StateActive:
		a.open[c] = nil
	default: // closed, or hijacked, which no handler does
		delete(a.open, c)
	}
	return victim
}
