package lease

import (
	"sync"
	"sync/atomic"
	"time"
)

// clock is monotonic time that also passes while the machine is suspended. The system's
// monotonic clock then stands still, and a lease would outlive what the store believes.
// The wall clock does not: by as much as it gets ahead of the monotonic one, time was
// missed. A wall clock that somebody sets ahead ends leases early for the same reason; one
// that is set back changes nothing.
type clock struct {
	read   func() (monotonic, wall time.Duration)
	ahead  atomic.Int64 // of the monotonic clock, as last seen
	missed atomic.Int64 // in all
	mu     sync.Mutex
}

// missedAtLeast is the shortest suspension that counts: below it, the difference may come
// from what happened between the two readings. Leases end earlier by as much (see life).
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

// now returns the time. It never runs backwards for a reader.
func (c *clock) now() time.Duration {
	monotonic, wall := c.read()
	if int64(wall-monotonic)-c.ahead.Load() > int64(missedAtLeast) {
		c.catchUp(int64(wall - monotonic))
	}
	return monotonic + time.Duration(c.missed.Load())
}

// catchUp counts what was missed, once.
func (c *clock) catchUp(ahead int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if by := ahead - c.ahead.Load(); by > int64(missedAtLeast) {
		c.missed.Add(by) // before whoever sees the new ahead reads it
		c.ahead.Store(ahead)
	}
}

// follow notices small adjustments of the wall clock, and that it was set back.
func (c *clock) follow() {
	c.now()
	c.mu.Lock()
	defer c.mu.Unlock()
	monotonic, wall := c.read()
	if ahead := int64(wall - monotonic); ahead-c.ahead.Load() <= int64(missedAtLeast) {
		c.ahead.Store(ahead)
	}
}
