package handshake

import (
	"container/list"
	"net"
	"net/netip"
)

// group is what a connection counts as.
type group uint8

const (
	pending         group = iota // in a handshake that is to identify its caller
	caller                       // of a gateway, node or operator
	unauthenticated              // of anyone else
	groups
)

// conn is one connection of a listener until it is closed.
type conn struct {
	net.Conn
	listener *Listener
	addr     netip.Addr

	// Guarded by listener.mu.
	group     group
	closed    bool
	leave     func()        // may be nil
	all, same *list.Element // in listener.waits
}

func (c *conn) NetConn() net.Conn { return c.Conn }

func (c *conn) Close() error {
	c.listener.mu.Lock()
	first := c.listener.forget(c)
	c.listener.mu.Unlock()
	return c.end(first)
}

// end closes a connection that the listener has forgotten, now if first is true.
func (c *conn) end(first bool) error {
	if first && c.leave != nil {
		c.leave()
	}
	return c.Conn.Close()
}

// Bounds of the connections in a handshake that is to identify their caller.
const (
	// maxPending is how many there may be. A handshake takes milliseconds, and all gateways may
	// begin theirs at once after a restart.
	maxPending = 2048
	// fairShare is how many of one address others make room for.
	fairShare = 64
)

// waiting are the connections in such a handshake, oldest first.
type waiting struct {
	all     *list.List // of *conn
	same    map[netip.Addr]*list.List
	crowded map[netip.Addr]struct{} // the addresses with more than their share
}

func (w *waiting) add(c *conn) {
	of := w.same[c.addr]
	if of == nil {
		of = list.New()
		w.same[c.addr] = of
	}
	c.all, c.same = w.all.PushBack(c), of.PushBack(c)
	if of.Len() > fairShare {
		w.crowded[c.addr] = struct{}{}
	}
}

// remove does nothing if c does not wait.
func (w *waiting) remove(c *conn) {
	if c.all == nil {
		return
	}
	of := w.same[c.addr]
	w.all.Remove(c.all)
	of.Remove(c.same)
	c.all, c.same = nil, nil
	if of.Len() <= fairShare {
		delete(w.crowded, c.addr)
	}
	if of.Len() == 0 {
		delete(w.same, c.addr)
	}
}

// oldest returns nil if none waits.
func (w *waiting) oldest() *conn {
	if e := w.all.Front(); e != nil {
		return e.Value.(*conn)
	}
	return nil
}

// victim returns the connection to close for a new one: the oldest, of an address with more than
// its share if there is one. Gateways complete their handshakes long before they are the oldest.
func (w *waiting) victim() *conn {
	for addr := range w.crowded {
		return w.same[addr].Front().Value.(*conn)
	}
	return w.oldest()
}
