package decide

import "time"

// MaxDelayed is how many requests may wait at once because of their tier; others are
// refused. Waiting requests hold no permit and nothing in the store.
const MaxDelayed = 1000

// maxDelayedOf is how many may wait per client, or rather per group of clients whose names
// fall into the same of delayedKinds: no client may take all places.
const (
	maxDelayedOf = MaxDelayed / 16
	delayedKinds = 4096
)

// delay waits, unless too many requests already do.
func (c *Behavior) delay(client uint64, d time.Duration) Effect {
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
