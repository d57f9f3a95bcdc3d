package lease

import (
	"container/heap"
	"context"
	"sync"
	"time"

	"github.com/weir-edge/weir/pkg/limiter"
	"github.com/weir-edge/weir/pkg/limiter/boottime"
)

// closeWithin bounds how long Close spends returning units. The rest counts as spent until
// it leaves the window.
const closeWithin = 2 * time.Second

// job is a call to the store that no request waits for: it asks for a lease, or returns the
// unspent units of one.
type job struct {
	lease     *lease // the one to ask for; nil for a return
	requests  uint64
	nodes     int
	saturated bool // ask as if this were the only node

	limit   *limiter.Limit
	key     string
	units   int64 // wanted, or returned
	takenAt int64
	use     *usage
	spent   bool // already counted as spent
}

// ask queues a request for units, at most one at a time per lease. The shard is locked.
func (s *Store) ask(l *lease, want int64) {
	j := job{lease: l, requests: l.requests, nodes: max(1, s.nodes()), saturated: l.saturated, limit: l.limit, key: l.key, units: want, use: l.use}
	select {
	case s.jobs <- j:
		l.asking = true
	default: // the store cannot keep up; the key stays strict for now
		l.resume = l.period
	}
}

// queue queues a return, or drops it if the store cannot keep up.
func (s *Store) queue(j job) {
	select {
	case s.jobs <- j:
	default:
		j.use.strand(&j)
	}
}

func (s *Store) work() {
	for {
		select {
		case <-s.stop:
			return
		case j := <-s.jobs:
			s.run(&j)
		}
	}
}

func (s *Store) run(j *job) {
	if j.lease == nil {
		s.giveBack(j)
		return
	}
	checks := [1]limiter.Check{{Limit: j.limit, Key: []byte(j.key), Cost: j.units, Nodes: j.nodes}}
	if j.saturated {
		checks[0].Nodes = 1
	}
	var d limiter.Decision
	sent := s.clock.Now()
	err := s.grants.Take(context.Background(), checks[:], &d)
	now := s.clock.Now() // after the answer, so after the grant
	var granted *limiter.Result
	if err == nil {
		granted = &d.Results[0]
	}
	s.answer(j, granted, sent, now)
}

// answer gives a lease what the store granted. granted is nil after an error, even though
// the store may have granted units. Those must not be returned: if the store never charged
// them, that much more would pass.
func (s *Store) answer(j *job, granted *limiter.Result, sent, now time.Duration) {
	l := j.lease
	l.shard.Lock()
	l.asking = false
	l.trip = now - sent
	switch {
	case granted == nil:
		l.resume = now + l.time
	case l.requests == j.requests:
		l.settle(j, granted, now, s.quietTime(l))
	}
	if granted == nil || granted.Granted == 0 {
		l.shard.Unlock()
		return
	}
	j.use.granted.Add(granted.Granted)
	if l.requests != j.requests { // reset meanwhile, before or after the grant
		l.forgotten = max(l.forgotten, granted.TakenAt)
		j.use.stranded.Add(granted.Granted)
		l.shard.Unlock()
		return
	}
	p := parcel{units: granted.Granted, size: granted.Granted, from: now, until: sent + life(j.limit, granted.ResetAfter), takenAt: granted.TakenAt}
	accepted := now < p.until && l.arrive(p)
	l.shard.Unlock()
	if !accepted {
		s.giveBack(&job{limit: j.limit, key: j.key, units: p.units, takenAt: p.takenAt, use: j.use})
	}
}

// life returns how long units may be spent after the call that granted them was sent: the
// lease time, but not beyond the end of a fixed window. Subtracted are a thousandth,
// because clocks slewed by NTP drift apart; a microsecond, because the store's clock counts
// whole ones; and the longest suspension that goes unnoticed.
func life(l *limiter.Limit, reset time.Duration) time.Duration {
	t := l.LeaseTime()
	switch l.Algorithm {
	case limiter.FixedWindow:
		t = min(t, reset)
	case limiter.SlidingWindow:
		t = min(t, reset-l.Window)
	}
	return t - t/1000 - time.Microsecond - boottime.MissedAtLeast
}

// giveBack returns units to the store. It is not retried: a return whose answer was lost
// may have taken effect.
func (s *Store) giveBack(j *job) {
	checks := [1]limiter.Check{{Limit: j.limit, Key: []byte(j.key), Cost: j.units}}
	d := limiter.Decision{Results: []limiter.Result{{Charged: true, TakenAt: j.takenAt}}}
	if s.grants.Return(context.Background(), checks[:], &d) != nil {
		j.use.strand(j)
		return
	}
	j.use.giveBack(j)
}

// giveBackAll returns many jobs' units at once, within closeWithin.
func (s *Store) giveBackAll(unspent []job) {
	const atOnce = 256
	until := s.clock.Now() + closeWithin
	var group sync.WaitGroup
	next := make(chan *job)
	for range min(atOnce, len(unspent)) {
		group.Go(func() {
			for j := range next {
				s.giveBack(j)
			}
		})
	}
	for i := range unspent {
		if s.clock.Now() >= until {
			unspent[i].use.strand(&unspent[i])
			continue
		}
		next <- &unspent[i]
	}
	close(next)
	group.Wait()
}

// sweep returns lapsed units and ends the leases of keys that have cooled.
func (s *Store) sweep() {
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	for {
		select {
		case <-s.stop:
			return
		case <-tick.C:
		}
		s.clock.Follow()
		unspent := s.postponed()
		if s.leases.Load() > 0 {
			for i := range s.shards {
				unspent = s.sweepShard(&s.shards[i], unspent)
			}
		}
		for i := range unspent {
			select {
			case s.jobs <- unspent[i]:
			case <-s.stop:
				s.postpone(unspent[i:])
				return
			}
		}
	}
}

func (s *Store) sweepShard(sh *shard, unspent []job) []job {
	now := s.clock.Now()
	sh.Lock()
	defer sh.Unlock()
	for len(sh.due) > 0 && sh.due[0].due <= now {
		l := sh.due[0]
		if l.ended {
			heap.Pop(&sh.due)
			continue
		}
		unspent = append(unspent, l.lapsed(now)...)
		l.observe(0, now)
		if l.older.size == 0 && l.newer.size == 0 && !l.asking && l.pace < coldAt && l.demand < coldAt {
			heap.Pop(&sh.due)
			s.end(l)
			continue
		}
		l.due = l.next(now)
		heap.Fix(&sh.due, 0)
	}
	return unspent
}

func (s *Store) postpone(unspent []job) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.later = append(s.later, unspent...)
}

func (s *Store) postponed() (unspent []job) {
	s.mu.Lock()
	defer s.mu.Unlock()
	unspent, s.later = s.later, nil
	return unspent
}
