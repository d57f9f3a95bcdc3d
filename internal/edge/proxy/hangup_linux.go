package proxy

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// hungUp reports whether a socket's peer has closed it, even behind unread bytes. It does
// not wait.
func hungUp(raw syscall.RawConn) (gone bool) {
	err := raw.Control(func(fd uintptr) { gone = polled(fd, unix.POLLRDHUP, unix.POLLRDHUP|unix.POLLHUP|unix.POLLERR) })
	return gone || err != nil
}

// pending reports whether the kernel has connections that a listener has not accepted.
func pending(raw syscall.RawConn) (some bool) {
	err := raw.Control(func(fd uintptr) { some = polled(fd, unix.POLLIN, unix.POLLIN) })
	return some && err == nil
}

func polled(fd uintptr, ask, want int16) bool {
	p := []unix.PollFd{{Fd: int32(fd), Events: ask}}
	n, err := unix.Poll(p, 0)
	return err == nil && n > 0 && p[0].Revents&want != 0
}
