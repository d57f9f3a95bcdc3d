// Package boottime is a clock that does not stop while the machine is suspended.
package boottime

import (
	"sync"
	"sync/atomic"
	"time"
)

// Clock is monotonic time that also advances while the machine is suspended. The system's
// monotonic clock then stands still, so what the store says for some time would outlive the
// store's view of it. The wall clock keeps running: how far it gets ahead of the monotonic
// clock is the time that was missed. If someone sets the wall clock ahead, that time counts
// as missed, too; setting it back changes nothing.
type Clock struct {
	read   func(time.Time) (monotonic, wall time.Duration)
	ahead  atomic.Int64 // of the monotonic clock, as last seen
	missed atomic.Int64 // total
	mu     sync.Mutex
}

// MissedAtLeast is the shortest suspension that a Clock counts. A smaller difference may be
// an adjustment of the wall clock.
const MissedAtLeast = time.Millisecond

// New returns a Clock. read returns both times of a reading of time.Now; tests set it.
// nil means the system's.
func New(read func(time.Time) (monotonic, wall time.Duration)) *Clock {
	if read == nil {
		born := time.Now()
		read = func(t time.Time) (monotonic, wall time.Duration) { return t.Sub(born), time.Duration(t.UnixNano()) }
	}
	c := &Clock{read: read}
	monotonic, wall := read(time.Now())
	c.ahead.Store(int64(wall - monotonic))
	return c
}

// Now returns the time.
func (c *Clock) Now() time.Duration { return c.At(time.Now()) }

// At returns the time of a recent reading of time.Now. Later readings are never earlier.
func (c *Clock) At(t time.Time) time.Duration {
	monotonic, wall := c.read(t)
	if int64(wall-monotonic)-c.ahead.Load() > int64(MissedAtLeast) {
		c.catchUp(int64(wall - monotonic))
	}
	return monotonic + time.Duration(c.missed.Load())
}

// catchUp adds what was missed, once.
func (c *Clock) catchUp(ahead int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if by := ahead - c.ahead.Load(); by > int64(MissedAtLeast) {
		c.missed.Add(by) // before a reader can see the new ahead
		c.ahead.Store(ahead)
	}
}

// Follow tracks small adjustments of the wall clock, and steps backwards. It must be called
// now and then.
func (c *Clock) Follow() {
	c.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	monotonic, wall := c.read(time.Now())
	if ahead := int64(wall - monotonic); ahead-c.ahead.Load() <= int64(MissedAtLeast) {
		c.ahead.Store(ahead)
	}
}
