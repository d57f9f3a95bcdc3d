package testenv

import (
	"errors"
	"io"
	"math"
	"net"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// Front is an address behind which one server can replace another, and which can lose
// what is sent.
type Front struct {
	Addr string

	listener syscall.Conn

	mu      sync.Mutex
	target  string
	open    map[net.Conn]bool
	percent int // of the segments that arrive here are dropped
}

// Forward forwards connections to target until the test ends.
func Forward(t testing.TB, target string) *Front {
	t.Helper()
	var plain net.ListenConfig
	plain.SetMultipathTCP(false) // multipath sockets accept no filter
	l, err := plain.Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	f := &Front{Addr: l.Addr().String(), listener: l.(*net.TCPListener), target: target, open: map[net.Conn]bool{}}
	var all sync.WaitGroup
	accept(l, &all, f.pass)
	t.Cleanup(func() {
		l.Close()
		f.To("")
		all.Wait()
	})
	return f
}

// accept calls each with every connection until l is closed.
func accept(l net.Listener, all *sync.WaitGroup, each func(net.Conn)) {
	all.Go(func() {
		for in, err := l.Accept(); err == nil; in, err = l.Accept() {
			all.Go(func() { each(in) })
		}
	})
}

// To cuts all connections; new ones go to target, or nowhere if it is "".
func (f *Front) To(target string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.target = target
	for conn := range f.open {
		conn.Close()
		delete(f.open, conn)
	}
}

// Lose makes the kernel drop percent of the segments that arrive here from either side,
// at random and including handshakes, like a lossy link: their senders repeat them. 0
// ends that.
func (f *Front) Lose(percent int) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.percent = percent
	err := lose(f.listener, percent)
	for conn := range f.open {
		if e := lose(conn.(syscall.Conn), percent); !errors.Is(e, net.ErrClosed) { // its other end may just have left
			err = errors.Join(err, e)
		}
	}
	return err
}

// lose attaches a filter of four instructions to a socket, which the kernel runs for each
// segment that the socket receives.
func lose(socket syscall.Conn, percent int) error {
	const random = 0xfffff000 + 56 // SKF_AD_OFF + SKF_AD_RANDOM
	program := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: random},
		{Code: unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K, K: uint32(percent * (math.MaxUint32 / 100)), Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: math.MaxUint32}, // keep all of it
		{Code: unix.BPF_RET | unix.BPF_K, K: 0},              // keep none of it
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Control(func(fd uintptr) {
		failed = unix.SetsockoptSockFprog(int(fd), unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]})
	})
	return errors.Join(err, failed)
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
	if f.percent > 0 && lose(out.(syscall.Conn), f.percent) != nil { // in inherits from the listener
		f.mu.Unlock()
		return
	}
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
