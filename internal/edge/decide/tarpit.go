package decide

import "time"

// MaxDelayed is how many requests wait at once because of their tier; others are refused.
// They hold neither a permit nor anything of the store.
const MaxDelayed = 1000

// maxDelayedOf is how many of one client do, of all whose names fall into the same of delayedKinds:
// nobody may take all places.
const (
	maxDelayedOf = MaxDelayed / 16
	delayedKinds = 4096
)

// delay waits, unless too many do already.
func (c *Conduct) delay(client uint64, d time.Duration) Effect {
	of := &c.delayedOf[client%delayedKinds]
	defer of.Add(-1)
	if of.Add(1) > maxDelayedOf {
		return Crowded
	}
	defer c.delayed.Add(-1)
	if c.delayed.Add(1) > MaxDelayed {
		return Crowded
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-c.Stop:
	}
	return DelayedFor
}
