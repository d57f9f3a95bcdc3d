//go:build unix

package proxy

import "syscall"

// stale reports whether an idle connection has been closed by the upstream, or
// has bytes waiting that belong to no request.
func (c *conn) stale() bool {
	return c.raw != nil && (c.raw.Control(c.probe) != nil || c.gone)
}

// peek is kept in c.probe, since a closure would cost an allocation each time.
func (c *conn) peek(fd uintptr) {
	var b [1]byte
	// The descriptor does not block: neither bytes nor an end is EAGAIN.
	_, _, err := syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK)
	c.gone = err != syscall.EAGAIN && err != syscall.EWOULDBLOCK && err != syscall.EINTR
}
