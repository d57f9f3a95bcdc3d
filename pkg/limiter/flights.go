package limiter

import (
	"context"
	"slices"
	"sync"
	"time"
)

// While a batch is in flight, the next one leaves after usualTrip plus what Redis needs for
// the calls in flight (Limit.Weight), with room to spare. On a network with a shorter round
// trip, batches therefore follow one another, as large as they can be; on a slower one,
// batches leave about as often and are no smaller. So a slow network costs a request one
// round trip instead of two, without reducing a shard's throughput.
//
// A second batch of fullBatch calls leaves at once: while Redis runs one, the node reads and
// answers the requests of the other.
const (
	usualTrip = 500 * time.Microsecond
	perCall   = 10 * time.Microsecond
	// fullBatch calls share the cost of starting a script so well that larger batches would
	// save Redis little (TABLES.md).
	fullBatch = 32
	// MaxFlights bounds the batches in flight to one master within the budget.
	MaxFlights = 4
	// MaxAloft adds those that are late, and so bounds the connections that batches use. When
	// it is reached the master is silent, so nothing more is sent to it, or charged.
	MaxAloft = 2 * MaxFlights
)

// flight is one round trip, with reusable memory.
type flight struct {
	batch, ask []*Call
	leads      map[uint64]*Call
	start      chan struct{}
	left       time.Time
}

// run sends batches until Combine is closed and its queue empty.
func (c *Combine) run() {
	defer close(c.ended)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var pilots sync.WaitGroup
	defer pilots.Wait()

	all := c.flights * MaxAloft / MaxFlights
	landed := make(chan *flight, all)
	var idle, aloft []*flight
	for range all {
		f := &flight{leads: map[uint64]*Call{}, start: make(chan struct{}, 1)}
		idle = append(idle, f)
		defer close(f.start)
		pilots.Go(func() {
			for range f.start {
				c.fly(ctx, f)
				landed <- f
			}
		})
	}

	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	var last time.Time
	land := func(f *flight) {
		idle = append(idle, f)
		aloft = slices.DeleteFunc(aloft, func(o *flight) bool { return o == f })
	}
	for {
		for {
			// Flights that are late hold up no others.
			flights, calls, overdue := 0, 0, c.budget
			for _, f := range aloft {
				if rest := c.budget - time.Since(f.left); rest > 0 {
					flights, calls, overdue = flights+1, calls+len(f.batch), min(overdue, rest)
				}
			}
			if len(idle) == 0 {
				land(<-landed)
				continue
			}
			wait, wake := usualTrip+time.Duration(calls)*perCall-time.Since(last), c.wake
			if flights == c.flights {
				wait, wake = overdue, nil
			} else if flights == 0 || wait <= 0 || flights == 1 && c.linger == 0 && c.queued() >= fullBatch {
				break
			}
			timer.Reset(wait)
			select {
			case f := <-landed:
				land(f)
			case <-timer.C:
			case <-wake:
			}
		}
		f := idle[len(idle)-1]
		if f.batch = c.next(f.batch); f.batch == nil {
			if len(aloft) > 0 {
				land(<-landed) // landing may queue returns
			} else if c.following.Wait(); c.queued() == 0 { // and so may those that follow
				return
			}
			continue
		}
		idle, aloft = idle[:len(idle)-1], append(aloft, f)
		f.left = time.Now()
		last = f.left
		f.start <- struct{}{}
	}
}

// queued returns how many calls wait.
func (c *Combine) queued() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.queue)
}

// fly makes one round trip and answers its calls.
func (c *Combine) fly(ctx context.Context, f *flight) {
	f.ask = c.merge(f.batch, f.ask[:0], f.leads)
	if len(f.ask) == 0 {
		return
	}
	c.onBatch(len(f.ask))
	c.shard.Do(ctx, f.ask)
	var elsewhere []*Call
	for _, lead := range f.ask {
		if lead.Elsewhere == nil {
			c.answer(lead)
			continue
		}
		for call := lead; call != nil; call = call.twin {
			call.state.CompareAndSwap(callWaiting, callFollowed)
		}
		elsewhere = append(elsewhere, lead)
	}
	if elsewhere != nil {
		c.following.Go(func() {
			c.shard.Follow(ctx, elsewhere)
			for _, lead := range elsewhere {
				c.answer(lead)
			}
		})
	}
}
