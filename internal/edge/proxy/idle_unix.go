//go:build unix

package proxy

import (
	"os"
	"syscall"
)

// peek checks what has arrived on an idle connection. The descriptor does not block.
func peek(fd uintptr, one []byte) idleState {
	n, _, err := syscall.Recvfrom(int(fd), one, syscall.MSG_PEEK)
	switch {
	case err == syscall.EAGAIN:
		return idleQuiet
	case n > 0:
		return idleUnsolicited
	default: // an orderly end, or a broken connection
		return idleClosed
	}
}

// readNow reads what has arrived. An end is io.EOF, as Read has set.
func (w *wire) readNow(fd uintptr) {
	n, err := syscall.Read(int(fd), w.p)
	switch {
	case err == syscall.EAGAIN:
		w.err = os.ErrDeadlineExceeded
	case err != nil:
		w.err = err
	case n > 0:
		w.n, w.err = n, nil
	}
}
