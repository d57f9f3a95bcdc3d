package lazy

import (
	"sync/atomic"
	"time"
)

// Late is how late a Clock may be.
const Late = 100 * time.Millisecond

// Clock is read where a tick more or less does not matter. It costs nothing to read.
type Clock struct {
	base    time.Time
	elapsed atomic.Int64 // ns since base, at least 1; 0: stopped
	stop    chan struct{}
}

// NewClock returns a Clock that runs until Close.
func NewClock() *Clock {
	c := &Clock{base: time.Now(), stop: make(chan struct{})}
	c.elapsed.Store(1)
	go c.run()
	return c
}

func (c *Clock) run() {
	tick := time.NewTicker(Late)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if now := int64(time.Since(c.base)); !c.advance(now) {
				return
			}
		case <-c.stop:
			return
		}
	}
}

// advance reports whether the clock still runs.
func (c *Clock) advance(now int64) bool {
	before := c.elapsed.Load()
	return before > 0 && c.elapsed.CompareAndSwap(before, now)
}

// Close stops the clock; connections that are still open read the exact time.
func (c *Clock) Close() {
	if c.elapsed.Swap(0) > 0 {
		close(c.stop)
	}
}

// Tick returns the latest tick, or 0 if the clock is stopped.
func (c *Clock) Tick() int64 { return c.elapsed.Load() }

// At returns the present or at most a tick later, but not an earlier time, so that no
// timeout is shorter than it says.
func (c *Clock) At(tick int64) time.Time {
	if tick == 0 {
		return time.Now()
	}
	return c.base.Add(time.Duration(tick) + Late)
}
