package limiter

import (
	"bytes"
	"errors"
	"hash/maphash"
	"sync/atomic"
	"time"
)

// Call is one question to a shard, as Combine passes it to a Batcher: the checks of Times
// identical requests, or the return of one request's charges.
type Call struct {
	Checks []Check
	// Times is how many identical requests this call stands for; 0 peeks.
	Times int
	// Return marks a return. TakenAt then holds when each check was charged.
	Return  bool
	TakenAt []int64

	// The answer, filled in by the Batcher.
	Err error
	// Elsewhere is why another shard has to answer, and nil otherwise. See Batcher.Follow.
	Elsewhere error
	Now       int64
	Answers   []Answer // one per check; none for a return

	keys     []byte // backs the keys of Checks
	decision Decision
	combine  *Combine
	resets   uint64    // of combine, when it was asked
	by       time.Time // when its caller leaves
	mayLead  bool      // its caller may make the round trip
	state    atomic.Int32
	done     chan struct{} // receives a value when the answer arrives, and one before if it is chosen
	timer    *time.Timer
	twin     *Call // the next request with the same checks in this batch
}

// Answer is the scripts' answer to one check, with times in microseconds.
type Answer struct {
	// Fits is how many of the requests this check would pass. For a lease, it is the number
	// of units granted.
	Fits int64
	// Remaining, Retry and Reset describe the state after all passing requests are charged.
	Remaining, Retry, Reset int64
}

// The states of a Call. The goroutine that moves it out of waiting owns it.
const (
	callWaiting  int32 = iota
	callChosen         // waiting, and its caller is to make the round trip
	callFollowed       // waiting for another shard
	callAnswered
	callAbandoned    // its caller left, and its request may pass
	callAnsweredLate // its answer came after that
	callRefused      // its caller left, and its request was refused
)

func newCall(c *Combine) any {
	t := time.NewTimer(time.Hour)
	t.Stop()
	return &Call{combine: c, done: make(chan struct{}, 1), timer: t}
}

// late is the error of a caller that left before its answer came. Nobody reuses the call.
type late struct {
	error
	call *Call
}

// Unwrap returns why the caller left.
func (l *late) Unwrap() error { return l.error }

// lateCall returns the call that err says was left, or nil.
func lateCall(err error) *Call {
	var l *late
	if errors.As(err, &l) {
		return l.call
	}
	return nil
}

// refused gives back what a call that was left has charged or charges later: its request was
// refused.
func (c *Call) refused() {
	if c != nil && !c.state.CompareAndSwap(callAbandoned, callRefused) && c.state.CompareAndSwap(callAnsweredLate, callRefused) {
		c.combine.giveBack(c, true)
	}
}

// set copies the checks, because the caller may leave before the answer arrives.
func (c *Call) set(checks []Check) {
	c.Err, c.Elsewhere, c.Now, c.twin, c.Return = nil, nil, 0, nil, false
	c.Answers, c.TakenAt = c.Answers[:0], c.TakenAt[:0]
	c.state.Store(callWaiting)
	c.resets = c.combine.resets.Load()
	c.keys = c.keys[:0]
	for i := range checks {
		c.keys = append(c.keys, checks[i].Key...)
	}
	c.Checks = append(c.Checks[:0], checks...)
	rest := c.keys
	for i := range c.Checks {
		n := len(c.Checks[i].Key)
		c.Checks[i].Key, rest = rest[:n:n], rest[n:]
	}
	c.Times = 1
	if len(checks) > 0 && checks[0].Peek {
		c.Times = 0
	}
}

// mergeable reports whether requests with the same checks can share one call. Concurrency
// slots cannot, because each request needs its own, and neither can leases or what gives back.
func (c *Call) mergeable() bool {
	if c.Return || c.Times == 0 {
		return false
	}
	for i := range c.Checks {
		if c.Checks[i].Limit.Algorithm == Concurrency || c.Checks[i].Nodes > 0 || c.Checks[i].Cost < 0 {
			return false
		}
	}
	return true
}

// room reports whether a check may store what one more identical request adds.
func (c *Call) room() bool {
	for i := range c.Checks {
		l := c.Checks[i].Limit
		if l.Storage == SortedSet && c.Checks[i].Cost*int64(c.Times+1) > MaxEntries {
			return false
		}
	}
	return true
}

// Weight is what the call costs a Redis server, in units of Limit.Weight.
func (c *Call) Weight() (sum int64) {
	for i := range c.Checks {
		sum += c.Checks[i].Limit.Weight(c.Checks[i].Cost * int64(max(c.Times, 1)))
	}
	return sum
}

// hash is the same for equal calls. With costs, calls for one key at alternating costs merge.
func (c *Call) hash(seed maphash.Seed) uint64 {
	h := maphash.Bytes(seed, c.keys)
	for i := range c.Checks {
		h = h*31 + uint64(c.Checks[i].Cost)
	}
	return h
}

func (c *Call) same(o *Call) bool {
	if len(c.Checks) != len(o.Checks) || !bytes.Equal(c.keys, o.keys) {
		return false
	}
	for i := range c.Checks {
		a, b := &c.Checks[i], &o.Checks[i]
		if a.Limit != b.Limit || a.Cost != b.Cost || len(a.Key) != len(b.Key) {
			return false
		}
	}
	return true
}

// decide turns the answers to lead into the decision for its i-th request.
func (c *Call) decide(lead *Call, i int64) {
	c.Err = lead.Err
	if c.Err != nil || c.Return {
		return
	}
	c.decision.Reset(len(c.Checks))
	if c.Lease() {
		c.granted()
		return
	}
	granted := int64(max(lead.Times, 1))
	for j := range c.Checks {
		if !c.Checks[j].Limit.Shadow {
			granted = min(granted, lead.Answers[j].Fits)
		}
	}
	c.decision.Allowed = i < granted
	for j := range c.Checks {
		check, a, r := &c.Checks[j], &lead.Answers[j], &c.decision.Results[j]
		charged := min(granted, a.Fits)
		if check.Limit.Overdraft {
			charged = a.Fits
		}
		r.Source, r.Limit, r.TakenAt = SourceRedis, check.Limit.Limit, lead.Now
		// A check that fits more requests than were charged has room: another one refused.
		r.Allowed = i < a.Fits || a.Fits > charged
		r.Charged = i < charged && lead.Times > 0 && check.Cost > 0 && !check.Limit.Overdraft
		r.Remaining = a.Remaining + max(0, charged-1-i)*check.Cost // as if one after another; of overdrafts, the least
		if !r.Allowed {
			r.RetryAfter = time.Duration(a.Retry) * time.Microsecond
		}
		r.ResetAfter = time.Duration(a.Reset) * time.Microsecond
		if r.Charged {
			r.TakenAt = check.Limit.ChargedAt(lead.Now, a.Reset, false)
		}
	}
}

// claim reports whether the caller still waits; it then gets the answer.
func (c *Call) claim() bool {
	return c.state.CompareAndSwap(callWaiting, callAnswered) || c.state.CompareAndSwap(callFollowed, callAnswered)
}

// Lease reports whether the call asks for a lease, which is its only check.
func (c *Call) Lease() bool { return !c.Return && len(c.Checks) == 1 && c.Checks[0].Nodes > 0 }

func (c *Call) granted() {
	a, l, r := &c.Answers[0], c.Checks[0].Limit, &c.decision.Results[0]
	r.Source, r.Limit, r.Granted, r.Remaining = SourceRedis, l.Limit, a.Fits, a.Remaining
	r.Allowed, r.Charged, c.decision.Allowed = a.Fits > 0, a.Fits > 0, a.Fits > 0
	r.ResetAfter = time.Duration(a.Reset) * time.Microsecond
	r.TakenAt = l.ChargedAt(c.Now, a.Reset, true)
}
