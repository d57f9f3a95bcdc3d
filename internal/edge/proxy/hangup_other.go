//go:build !linux

package proxy

import "syscall"

// hungUp never reports true on this platform: a stream notices when it writes.
func hungUp(syscall.RawConn) bool { return false }

// pending never reports true on this platform: connections that nobody has accepted are reset.
func pending(syscall.RawConn) bool { return false }
