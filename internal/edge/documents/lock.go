package documents

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// Lock reserves a cache for this process until release is called or the process dies: two
// nodes that share one would start with each other's document. It locks a file next to the
// cache, because the cache itself is replaced at each write. A read-only folder is not an
// error here: the cache's condition reports it.
func Lock(cache string) (release func(), err error) {
	f, err := os.OpenFile(cache+".lock", os.O_RDWR|os.O_CREATE|syscall.O_CLOEXEC, 0o600)
	if err != nil {
		return func() {}, nil
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); errors.Is(err, syscall.EWOULDBLOCK) {
		_ = f.Close()
		return nil, fmt.Errorf("%s is in use by another node; give each node its own file", cache)
	}
	return func() { _ = f.Close() }, nil
}
