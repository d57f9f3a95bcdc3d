package main

import (
	"errors"
	"io"
	"net"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// way is a network path to a server that delays all bytes.
type way struct {
	addr     string
	listener net.Listener
	target   string
	each     time.Duration // in either direction

	mu   sync.Mutex
	open map[net.Conn]bool
	all  sync.WaitGroup
}

// lengthen returns a path to a server with this much added to its round trip.
func lengthen(target string, by time.Duration) (*way, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	w := &way{addr: l.Addr().String(), listener: l, target: target, each: by / 2, open: map[net.Conn]bool{}}
	w.all.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", target)
			if err != nil {
				in.Close()
				continue
			}
			w.mu.Lock()
			w.open[in], w.open[out] = true, true
			w.mu.Unlock()
			w.all.Go(func() { w.carry(in, out) })
			w.all.Go(func() { w.carry(out, in) })
		}
	})
	return w, nil
}

func (w *way) close() {
	_ = w.listener.Close()
	w.mu.Lock()
	for c := range w.open {
		_ = c.Close()
	}
	w.mu.Unlock()
	w.all.Wait()
}

type piece struct {
	due  time.Time
	data []byte
}

// carry delivers what it reads when it is due, in order, whatever its rate.
func (w *way) carry(from, to net.Conn) {
	pieces := make(chan piece, 1024)
	w.all.Go(func() {
		// Go's timers round short waits up to a millisecond where nothing else runs.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0)
		for p := range pieces {
			if left := time.Until(p.due); left > 0 {
				ts := unix.NsecToTimespec(left.Nanoseconds())
				_ = unix.Nanosleep(&ts, nil)
			}
			if _, err := to.Write(p.data); err != nil {
				break
			}
		}
		_ = to.Close()
		for range pieces { // until the reader ends
		}
	})
	defer close(pieces)
	for {
		b := make([]byte, 64<<10)
		n, err := from.Read(b)
		if n > 0 {
			pieces <- piece{time.Now().Add(w.each), b[:n]}
		}
		if err != nil {
			if !errors.Is(err, io.EOF) {
				_ = from.Close()
			}
			return
		}
	}
}
