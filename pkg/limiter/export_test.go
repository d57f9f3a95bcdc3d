package limiter

import "time"

// SetNow lets tests move the clock by hand.
func (m *Denied) SetNow(now func() time.Time) { m.now = now }

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
