// Package lazy makes the deadlines of connections cheap: timers move only when they fire, and time
// is read from a clock that ticks ten times per second.
package lazy

import (
	"errors"
	"net"
	"os"
	"time"
)

// Conn moves a connection's timers only when they fire. A request sets two deadlines,
// or a server's own three, nearly always each a little later than the one before, and
// moving a timer costs more than deciding a request from memory. So a deadline later
// than the armed one is only recorded; when the armed one ends a call too early, the call
// continues with the recorded one.
//
// Do not use it below TLS, whose state does not survive an interrupted write.
type Conn struct {
	net.Conn
	read, write deadline
}

// deadline is used by the one goroutine that serves the connection.
type deadline struct{ wanted, armed time.Time }

func (c *Conn) SetReadDeadline(t time.Time) error {
	return c.read.set(t, c.Conn.SetReadDeadline)
}

func (c *Conn) SetWriteDeadline(t time.Time) error {
	return c.write.set(t, c.Conn.SetWriteDeadline)
}

func (c *Conn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

// CloseWrite ends the sending half.
func (c *Conn) CloseWrite() error { return CloseWrite(c.Conn) }

// CloseWrite ends the sending half of a connection, if it can.
func CloseWrite(c net.Conn) error {
	if half, ok := c.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}

func (c *Conn) Read(b []byte) (int, error) {
	for {
		n, err := c.Conn.Read(b)
		if err == nil || !c.read.early(err) {
			return n, err
		}
		if err := c.read.arm(c.Conn.SetReadDeadline); err != nil {
			return n, err
		}
		if n > 0 {
			return n, nil
		}
	}
}

func (c *Conn) Write(b []byte) (int, error) {
	written := 0
	for {
		n, err := c.Conn.Write(b[written:])
		written += n
		if err == nil || !c.write.early(err) {
			return written, err
		}
		if err := c.write.arm(c.Conn.SetWriteDeadline); err != nil {
			return written, err
		}
	}
}

func (d *deadline) set(t time.Time, arm func(time.Time) error) error {
	d.wanted = t
	if !d.armed.IsZero() && !t.IsZero() && !t.Before(d.armed) {
		return nil
	}
	return d.arm(arm)
}

func (d *deadline) arm(arm func(time.Time) error) error {
	d.armed = d.wanted
	return arm(d.wanted)
}

// early reports whether err comes from the armed deadline although the requested one is
// still ahead.
func (d *deadline) early(err error) bool {
	return errors.Is(err, os.ErrDeadlineExceeded) && d.armed.Before(d.wanted) && time.Now().Before(d.wanted)
}
