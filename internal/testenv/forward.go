package testenv

import (
	"io"
	"net"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// Front is an address behind which one Consul can take the place of another.
type Front struct {
	Addr string

	mu     sync.Mutex
	target string
	open   map[net.Conn]bool
}

// Forward passes connections on until the test ends.
func Forward(t testing.TB, target string) *Front {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	f := &Front{Addr: l.Addr().String(), target: target, open: map[net.Conn]bool{}}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() { f.pass(in) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		f.To("")
		all.Wait()
	})
	return f
}

// To cuts all connections; the next go to target, or nowhere.
func (f *Front) To(target string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.target = target
	for conn := range f.open {
		conn.Close()
		delete(f.open, conn)
	}
}

func (f *Front) pass(in net.Conn) {
	defer in.Close()
	f.mu.Lock()
	target := f.target
	f.mu.Unlock()
	if target == "" {
		return
	}
	out, err := net.Dial("tcp", target)
	if err != nil {
		return
	}
	defer out.Close()
	f.mu.Lock()
	if f.target != target {
		f.mu.Unlock()
		return
	}
	f.open[in], f.open[out] = true, true
	f.mu.Unlock()
	var both sync.WaitGroup
	both.Go(func() { io.Copy(out, in); out.Close(); in.Close() })
	both.Go(func() { io.Copy(in, out); in.Close(); out.Close() })
	both.Wait()
	f.mu.Lock()
	delete(f.open, in)
	delete(f.open, out)
	f.mu.Unlock()
}
