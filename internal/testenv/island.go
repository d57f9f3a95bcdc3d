package testenv

import (
	"context"
	"net"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// Island is a separate network on this machine, with the same loopback addresses as the
// test's. A server at an address on one side is reachable at the same address on the
// other if a cable leads there. Creating one requires root.
type Island struct {
	t    testing.TB
	ns   *os.File
	sea  sync.RWMutex // locked for writing while the cables are cut
	away bool
}

// NewIsland creates an island that lasts until the test ends.
func NewIsland(t testing.TB) *Island {
	t.Helper()
	i := &Island{t: t}
	made := make(chan error)
	go func() { // its thread belongs to the island and ends with it
		runtime.LockOSThread()
		err := unix.Unshare(unix.CLONE_NEWNET)
		if err == nil {
			err = loopbackUp()
		}
		if err == nil {
			i.ns, err = os.Open("/proc/thread-self/ns/net")
		}
		made <- err
	}()
	require.NoError(t, <-made, "a separate network requires root")
	t.Cleanup(func() { _ = i.ns.Close() })
	return i
}

func loopbackUp() error {
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(socket)
	lo, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	lo.SetUint16(unix.IFF_UP)
	return unix.IoctlIfreq(socket, unix.SIOCSIFFLAGS, lo)
}

// enter moves the calling goroutine, and what it starts, to the island. Pair it with
// leave.
func (i *Island) enter() error {
	runtime.LockOSThread()
	if i == nil {
		return nil
	}
	return unix.Setns(int(i.ns.Fd()), unix.CLONE_NEWNET)
}

// leave releases the thread, unless it was on an island: then it ends with its goroutine.
func (i *Island) leave() {
	if i == nil {
		runtime.UnlockOSThread()
	}
}

// there calls open on the island, or here if i is nil.
func there[T any](i *Island, open func() (T, error)) (T, error) {
	type result struct {
		opened T
		err    error
	}
	done := make(chan result)
	go func() {
		var r result
		if r.err = i.enter(); r.err == nil {
			r.opened, r.err = open()
		}
		i.leave()
		done <- r
	}()
	r := <-done
	return r.opened, r.err
}

// dial connects on the island, bypassing all cables.
func (i *Island) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	return there(i, func() (net.Conn, error) { return new(net.Dialer).DialContext(ctx, network, addr) })
}

// Edge is the function Edge, on the island. The test can always reach the node, and the
// node the origin at host:port.
func (i *Island) Edge(t testing.TB, config, rules, origin string) *EdgeNode {
	t.Helper()
	i.cable(nil, origin, false)
	return edgeOf(i, t, Program(t, "edge"), config, rules)
}

func (i *Island) Start(c *exec.Cmd) error {
	_, err := there(i, func() (struct{}, error) { return struct{}{}, c.Start() })
	return err
}

// Cut blocks all traffic between the island and the rest: connections stay open, and new
// ones open, but nothing arrives until Mend.
func (i *Island) Cut() { i.sea.Lock(); i.away = true }

// Mend ends Cut: what was in transit arrives late.
func (i *Island) Mend() { i.away = false; i.sea.Unlock() }

// cable makes a server at addr on one side (nil: the test's) reachable on the other. One
// that cannot be cut is for the test itself.
func (i *Island) cable(side *Island, addr string, cut bool) {
	i.t.Helper()
	other := i
	if side == i {
		other = nil
	}
	l, err := there(other, func() (net.Listener, error) { return net.Listen("tcp", addr) })
	require.NoError(i.t, err)
	var all sync.WaitGroup
	ctx, cancel := context.WithCancel(context.Background())
	accept(l, &all, func(in net.Conn) { i.pass(ctx, in, side, addr, cut) })
	i.t.Cleanup(func() {
		if i.away {
			i.Mend()
		}
		cancel()
		l.Close()
		all.Wait()
	})
}

func (i *Island) pass(ctx context.Context, in net.Conn, side *Island, addr string, cut bool) {
	defer in.Close()
	i.crosses(cut)
	out, err := side.dial(ctx, "tcp", addr)
	if err != nil {
		return
	}
	defer out.Close()
	defer context.AfterFunc(ctx, func() { in.Close(); out.Close() })()
	var both sync.WaitGroup
	copied := func(to, from net.Conn) {
		defer to.Close()
		defer from.Close()
		buf := make([]byte, 32<<10)
		for {
			n, err := from.Read(buf)
			i.crosses(cut)
			if _, failed := to.Write(buf[:n]); err != nil || failed != nil {
				return
			}
		}
	}
	both.Go(func() { copied(out, in) })
	both.Go(func() { copied(in, out) })
	both.Wait()
}

// crosses waits while the cables are cut.
func (i *Island) crosses(cut bool) {
	if cut {
		i.sea.RLock()
		i.sea.RUnlock() //lint:ignore SA2001 only to wait
	}
}
