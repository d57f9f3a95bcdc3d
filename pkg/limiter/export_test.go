package limiter

import (
	"sync/atomic"
	"time"

	"github.com/weir-edge/weir/pkg/limiter/boottime"
)

// SetNow lets tests move the clock by hand.
func (m *Denied) SetNow(now func() time.Time) { m.now = now }

// SetClock lets tests suspend the machine.
func (m *Denied) SetClock(c *boottime.Clock) { m.clock = c }

// Len returns how many refusals are remembered.
func (m *Denied) Len() int {
	n := 0
	for i := range m.shards {
		n += len(m.shards[i].refusals)
	}
	return n
}

// MaxQueue is how many calls may wait in a Combine.
const MaxQueue = maxQueue

// ShareATime reports whether two of these checks share the time of a refusal.
func (s *Spread) ShareATime(checks ...Check) bool {
	seen := map[*atomic.Int64]bool{}
	for i := range checks {
		seen[s.refused(checks[i].Key)] = true
	}
	return len(seen) < len(checks)
}
