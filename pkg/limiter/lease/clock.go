package lease

import (
	"sync"
	"sync/atomic"
	"time"
)

// clock is monotonic time that also advances while the machine is suspended. The system's
// monotonic clock then stands still, so a lease would outlive the store's view of it. The
// wall clock keeps running: how far it gets ahead of the monotonic clock is the time that
// was missed. If someone sets the wall clock ahead, leases end early for the same reason;
// setting it back changes nothing.
type clock struct {
	read   func() (monotonic, wall time.Duration)
	ahead  atomic.Int64 // of the monotonic clock, as last seen
	missed atomic.Int64 // total
	mu     sync.Mutex
}

// missedAtLeast is the shortest suspension that counts. A smaller difference may just be
// time between the two readings. Leases end earlier by the same amount (see life).
const missedAtLeast = time.Millisecond

// systemClock returns a reader of both clocks, in one call.
func systemClock() func() (monotonic, wall time.Duration) {
	born := time.Now()
	return func() (monotonic, wall time.Duration) {
		t := time.Now()
		return t.Sub(born), time.Duration(t.UnixNano())
	}
}

func newClock(read func() (monotonic, wall time.Duration)) *clock {
	c := &clock{read: read}
	monotonic, wall := read()
	c.ahead.Store(int64(wall - monotonic))
	return c
}

// now returns the time. No reader sees it run backwards.
func (c *clock) now() time.Duration {
	monotonic, wall := c.read()
	if int64(wall-monotonic)-c.ahead.Load() > int64(missedAtLeast) {
		c.catchUp(int64(wall - monotonic))
	}
	return monotonic + time.Duration(c.missed.Load())
}

// catchUp adds what was missed, once.
func (c *clock) catchUp(ahead int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if by := ahead - c.ahead.Load(); by > int64(missedAtLeast) {
		c.missed.Add(by) // before a reader can see the new ahead
		c.ahead.Store(ahead)
	}
}

// follow tracks small adjustments of the wall clock, and steps backwards.
func (c *clock) follow() {
	c.now()
	c.mu.Lock()
	defer c.mu.Unlock()
	monotonic, wall := c.read()
	if ahead := int64(wall - monotonic); ahead-c.ahead.Load() <= int64(missedAtLeast) {
		c.ahead.Store(ahead)
	}
}
