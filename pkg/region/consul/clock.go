package consul

import (
	"net/http"
	"sync/atomic"
	"time"
)

// sameClock is the smallest difference between two clocks that counts. Dates are whole
// seconds, and answers take time.
const sameClock = 5 * time.Second

// clock compares this process's clock with that of the Consul that answers it.
type clock struct {
	heard atomic.Bool
	ahead atomic.Int64 // nanoseconds
}

// hear processes the Date of an answer.
func (c *clock) hear(date string, now time.Time) {
	at, err := http.ParseTime(date)
	if err != nil {
		return
	}
	ahead := at.Add(time.Second / 2).Sub(now)
	if ahead.Abs() < sameClock {
		ahead = 0
	}
	c.ahead.Store(int64(ahead))
	c.heard.Store(true)
}

// Ahead returns how far Consul's clock is ahead of this process's, according to its last
// answer; differences of a few seconds count as none. known is false before the first
// answer.
func (c *Client) Ahead() (d time.Duration, known bool) {
	return time.Duration(c.clock.ahead.Load()), c.clock.heard.Load()
}

// Now returns the time by Consul's clock. Nodes keep time with their region, while the clock
// of an operator's machine may be hours off.
func (c *Client) Now() time.Time {
	ahead, _ := c.Ahead()
	return time.Now().Add(ahead)
}
