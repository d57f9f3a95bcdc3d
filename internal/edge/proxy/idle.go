package proxy

import (
	"crypto/tls"
	"io"
	"net"
	"os"
	"syscall"
	"time"
)

// keepAliveBan is how long an upstream that sent unrequested bytes gets a new
// connection for each request.
const keepAliveBan = 60 * time.Second

// idleState is what checking an idle connection finds.
type idleState uint8

const (
	idleQuiet       idleState = iota // nothing arrived: the next bytes answer the next request
	idleClosed                       // by the upstream, or broken
	idleUnsolicited                  // waiting bytes would be taken for the next response
)

// look checks an idle connection before its next request. It costs one system call and
// does not wait.
func (c *conn) look() idleState {
	if c.raw == nil {
		return idleClosed // without a descriptor its state is unknown
	}
	if c.tls != nil {
		return c.lookThroughTLS()
	}
	if c.raw.Control(c.peek) != nil {
		return idleClosed
	}
	return c.found
}

// lookThroughTLS reads what the TLS connection holds, without waiting for more. Session
// tickets and key updates may arrive at any time and are processed; application data is
// not allowed. A peek could not distinguish them, nor see what TLS has read ahead.
func (c *conn) lookThroughTLS() idleState {
	c.wire.hurried = true
	n, err := c.tls.Read(c.one[:])
	c.wire.hurried = false
	switch {
	case n > 0:
		return idleUnsolicited
	case err == os.ErrDeadlineExceeded && c.wire.record.whole():
		return idleQuiet
	default:
		return idleClosed
	}
}

// wire is the TCP connection below TLS.
type wire struct {
	net.Conn
	raw     syscall.RawConn
	read    func(uintptr) // w.readNow, since a closure would cost an allocation each time
	hurried bool          // Read must not wait
	record  recordEnd

	p   []byte // of readNow
	n   int
	err error
}

// Read fails with os.ErrDeadlineExceeded if hurried is set and no data is waiting,
// after which the TLS connection remains usable.
func (w *wire) Read(p []byte) (n int, err error) {
	if w.hurried {
		w.p, w.n, w.err = p, 0, io.EOF
		if err := w.raw.Control(w.read); err != nil {
			return 0, err
		}
		n, err, w.p = w.n, w.err, nil
	} else {
		n, err = w.Conn.Read(p)
	}
	w.record.advance(p[:n])
	return n, err
}

// recordEnd follows TLS records, to tell whether what was read ends with one.
type recordEnd struct {
	header [5]byte
	have   int // bytes of header
	left   int // bytes of the record after its header
}

func (r *recordEnd) whole() bool { return r.have == 0 && r.left == 0 }

func (r *recordEnd) advance(b []byte) {
	for len(b) > 0 {
		if r.left > 0 {
			n := min(r.left, len(b))
			r.left -= n
			b = b[n:]
			continue
		}
		n := copy(r.header[r.have:], b)
		r.have += n
		b = b[n:]
		if r.have == len(r.header) {
			r.left = int(r.header[3])<<8 | int(r.header[4])
			r.have = 0
		}
	}
}

// overTLS begins TLS on nc so that look can see through it.
func (c *conn) overTLS(nc net.Conn, cfg *tls.Config, deadline time.Time) error {
	c.wire = &wire{Conn: nc, raw: c.raw}
	c.wire.read = c.wire.readNow
	c.tls = tls.Client(c.wire, cfg)
	c.Conn = c.tls
	if err := c.tls.SetDeadline(deadline); err != nil {
		return err
	}
	return c.tls.Handshake()
}
