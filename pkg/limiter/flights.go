package limiter

import (
	"context"
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
	// MaxFlights bounds the batches in flight to one master, and so the connections they
	// use.
	MaxFlights = 4
)

// flight is one round trip, with reusable memory.
type flight struct {
	batch, ask []*Call
	leads      map[uint64]*Call
	start      chan struct{}
}

// run sends batches until Combine is closed and its queue empty.
func (c *Combine) run() {
	defer close(c.ended)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var pilots sync.WaitGroup
	defer pilots.Wait()

	landed := make(chan *flight, c.flights)
	var idle []*flight
	for range c.flights {
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
	calls := 0 // in flight
	land := func(f *flight) {
		idle = append(idle, f)
		calls -= len(f.batch)
	}
	for {
		for len(idle) < c.flights {
			wait := usualTrip + time.Duration(calls)*perCall - time.Since(last)
			if len(idle) == 0 {
				land(<-landed)
				continue
			}
			if wait <= 0 || len(idle) == c.flights-1 && c.full() {
				break
			}
			timer.Reset(wait)
			select {
			case f := <-landed:
				land(f)
			case <-timer.C:
			case <-c.wake:
			}
		}
		f := idle[len(idle)-1]
		if f.batch = c.next(f.batch); f.batch == nil {
			if len(idle) < c.flights {
				land(<-landed) // landing may queue returns
			} else if c.following.Wait(); c.empty() { // and so may those that follow
				return
			}
			continue
		}
		idle = idle[:len(idle)-1]
		last, calls = time.Now(), calls+len(f.batch)
		f.start <- struct{}{}
	}
}

// full reports whether the queue makes a full batch that need not linger.
func (c *Combine) full() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.linger == 0 && len(c.queue) >= fullBatch
}

func (c *Combine) empty() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.queue) == 0
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
