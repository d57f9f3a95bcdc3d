// Package turns lets requests that have arrived go first. Before a connection reads its next request,
// it yields to the other connections of its listener; meanwhile that request may arrive, which
// saves a futile read and a wait for the poller. While no other connection would run, to yield only
// wakes an idle thread, so a connection finds out from time to time whether one does.
package turns

import (
	"runtime"
	"sync/atomic"
)

const (
	// waitEvery is how often a connection waits for the poller instead of yielding. Go polls only
	// when nothing else can run, or every 10 ms: if all yielded every time, the connections that
	// wait would be late.
	waitEvery = 4
	// probeEvery is how often a connection finds out whether others go first. It believes so until
	// busyFor times in a row none did.
	probeEvery = 16
	busyFor    = 2
)

// Listener is shared by the connections that yield to each other.
type Listener struct {
	probes atomic.Int32  // connections that find out whether others go first
	turns  atomic.Uint32 // of connections meanwhile
}

// Conn is a connection. Only the goroutine that serves it may use it.
type Conn struct {
	turns uint8
	busy  uint8 // more than 0: others go first when it yields
}

// Yield lets the listener's other connections go first, if any would. Call it before reading a request,
// not for each one, because a client may send several at once.
func (c *Conn) Yield(l *Listener) {
	if l.probes.Load() > 0 {
		l.turns.Add(1)
	}
	c.turns++
	switch {
	case c.turns%probeEvery == 1:
		l.probes.Add(1)
		turns := l.turns.Load()
		runtime.Gosched()
		if l.turns.Load() != turns {
			c.busy = busyFor
		} else if c.busy > 0 {
			c.busy--
		}
		l.probes.Add(-1)
	case c.busy > 0 && c.turns%waitEvery != 0:
		runtime.Gosched()
	}
}
