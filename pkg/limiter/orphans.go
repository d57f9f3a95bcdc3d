package limiter

import (
	"context"
	"errors"
	"sync"
	"time"
)

// orphans are concurrency slots that the store could not take back, from requests that
// finished or never learned that they held one. Without orphans, a Redis that hangs for a
// second would count finished requests until their window ends. Each slot is returned as
// soon as the store answers, or dropped once it has expired.
type orphans struct {
	store Returner

	mu      sync.Mutex
	list    []orphan
	running bool
	stop    chan struct{}
	ended   sync.WaitGroup
}

type orphan struct {
	checks   []Check
	decision Decision
	expires  time.Time
}

const (
	orphansEvery = 250 * time.Millisecond
	maxOrphans   = 10_000 // beyond it, slots expire unreturned
)

// adopt takes over the slots among these checks: those charged in d or, if d is nil, all
// of them. It reports whether there were any.
func (o *orphans) adopt(checks []Check, d *Decision) bool {
	var found orphan
	var longest time.Duration
	for i := range checks {
		c := checks[i]
		if c.Limit.Algorithm != Concurrency || c.Peek || d != nil && !d.Results[i].Charged {
			continue
		}
		c.Key = append([]byte(nil), c.Key...)
		found.checks = append(found.checks, c)
		found.decision.Results = append(found.decision.Results, Result{Charged: true})
		longest = max(longest, c.Limit.Window)
	}
	if len(found.checks) == 0 {
		return false
	}
	found.expires = time.Now().Add(longest)
	o.mu.Lock()
	defer o.mu.Unlock()
	select {
	case <-o.stop:
		return true
	default:
	}
	if len(o.list) < maxOrphans {
		o.list = append(o.list, found)
	}
	if !o.running {
		o.running = true
		o.ended.Go(o.run)
	}
	return true
}

// run returns orphans until none are left.
func (o *orphans) run() {
	tick := time.NewTicker(orphansEvery)
	defer tick.Stop()
	for {
		select {
		case <-o.stop:
			return
		case <-tick.C:
		}
		o.mu.Lock()
		list := o.list
		o.list = nil
		o.mu.Unlock()
		left := o.tryAll(list)
		o.mu.Lock()
		o.list = append(left, o.list...)
		o.running = len(o.list) > 0
		again := o.running
		o.mu.Unlock()
		if !again {
			return
		}
	}
}

// tryAll returns as many slots as it can to the store, and the rest to the caller. It
// pauses after a few slow failures.
func (o *orphans) tryAll(list []orphan) (left []orphan) {
	const patience = 3
	slow := 0
	for i := range list {
		if time.Now().After(list[i].expires) {
			continue
		}
		err := ErrBroken
		if slow < patience {
			err = o.store.Return(context.Background(), list[i].checks, &list[i].decision)
		}
		if err == nil {
			continue
		}
		left = append(left, list[i])
		if !errors.Is(err, ErrBroken) {
			slow++
		}
	}
	return left
}

// close stops further attempts.
func (o *orphans) close() {
	o.mu.Lock()
	close(o.stop)
	o.mu.Unlock()
	o.ended.Wait()
}
