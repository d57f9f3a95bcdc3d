//go:build !unix

package proxy

import "syscall"

// peekAt cannot tell here whether bytes have arrived, so no connection is used twice.
func (c *conn) peekAt(uintptr) { c.found = idleClosed }

func (w *wire) readNow(uintptr) { w.err = syscall.EINVAL }
