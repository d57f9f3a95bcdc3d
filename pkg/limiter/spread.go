package limiter

import (
	"bytes"
	"context"
	"errors"
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"
)

// Spread makes decisions across slots all-or-nothing. One script decides the checks of
// one slot; for a request that spans several, Spread runs them concurrently and, if any
// refuses, returns what the others charged.
//
// Between the charge and the return, a request may be refused that would otherwise have
// passed; none passes that should not. So that a client's own limit does not charge and return
// a limit that others share again and again, the slot that refused last is asked alone first,
// and the others only if it passes or takes long.
type Spread struct {
	next     FullStore
	budget   time.Duration
	by       func(key []byte) []byte // keys of equal results are decided together
	seed     maphash.Seed
	born     time.Time
	refusals [1 << 14]atomic.Int64 // by hash of the key; see heed
}

var _ FullStore = (*Spread)(nil)

// NewSpread returns a Spread over a store that can decide checks of only one slot at a
// time. budget bounds a whole Take, including the return; a slower return continues in the
// background.
func NewSpread(next FullStore, budget time.Duration) *Spread {
	return &Spread{next: next, budget: budget, by: Subject, seed: maphash.MakeSeed(), born: time.Now()}
}

// NewApart returns a Spread over a store that can decide only one key at a time.
func NewApart(next FullStore, budget time.Duration) *Spread {
	s := NewSpread(next, budget)
	s.by = func(key []byte) []byte { return key }
	return s
}

// returnsArrive is how often to call the store for a key whose charges may be about to be
// returned.
const returnsArrive = 25 * time.Millisecond

// Returns is how long to remember a refusal in front of this store: no longer than a charge
// that explains it may wait for its return, of which the charge, another slot's refusal and the
// return itself take a budget each. Most returns take far less, so it is shorter.
func (s *Spread) Returns() time.Duration { return min(3*s.budget, returnsArrive) }

// Take decides all slots' checks concurrently, or first those of a slot that probably refuses.
func (s *Spread) Take(ctx context.Context, checks []Check, d *Decision) error {
	if s.together(checks) {
		return s.next.Take(ctx, checks, d)
	}
	now := time.Now()
	deadline := now.Add(s.budget)
	if end, ok := ctx.Deadline(); ok && end.Before(deadline) {
		deadline = end
	}
	parts := s.split(checks)
	if s.refusesFirst(parts, now) {
		parts = s.askFirst(ctx, parts, deadline)
	} else {
		s.ask(ctx, parts)
	}
	return s.join(ctx, parts, checks, d, deadline)
}

// askFirst asks the first part, and the others if it passes or is late. It returns those asked.
func (s *Spread) askFirst(ctx context.Context, parts parts, deadline time.Time) parts {
	first, answered := parts[:1], make(chan struct{})
	go func() {
		defer close(answered)
		s.ask(ctx, first)
	}()
	late := time.NewTimer(s.budget / 4)
	defer late.Stop()
	select {
	case <-answered:
		if !first[0].passed() {
			return first
		}
	case <-late.C:
	}
	// Not ErrTimeout: a shard that answers later has not had its whole budget.
	rest, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	s.ask(rest, parts[1:])
	<-answered
	return parts
}

// ask lets the next store decide the parts concurrently.
func (s *Spread) ask(ctx context.Context, parts parts) {
	parts.each(func(p *part) {
		if p.err = s.next.Take(ctx, p.checks, &p.decision); p.err == nil {
			s.heed(p)
		}
	})
}

// join puts the answers together. A part that was not asked has none.
func (s *Spread) join(ctx context.Context, parts parts, checks []Check, d *Decision, deadline time.Time) error {
	d.Reset(len(checks))
	d.Allowed = true
	var spent, unavailable bool
	var errs []error
	for i := range parts {
		p := &parts[i]
		if p.err != nil {
			errs = append(errs, p.err)
			continue
		}
		for j, at := range p.at {
			d.Results[at] = p.decision.Results[j]
		}
		d.Allowed = d.Allowed && p.decision.Allowed
		unavailable = unavailable || p.decision.StoreUnavailable
		spent = spent || !p.decision.Allowed && !p.decision.StoreUnavailable
	}
	d.StoreUnavailable = unavailable && !spent // an exhausted limit is the better reason
	if len(errs) > 0 {
		d.Allowed = false
	}
	if !d.Allowed {
		s.undo(ctx, parts, d, deadline)
	}
	return errors.Join(errs...)
}

// refusesFor is how long a slot that refused is asked first.
const refusesFor = 5 * time.Second

// heed notes when a key refuses. Keys may share a time: it decides only in which order slots
// are asked.
func (s *Spread) heed(p *part) {
	for i := range p.checks {
		c, r := &p.checks[i], &p.decision.Results[i]
		if r.Refuses(c) && !c.Peek && !r.Failed && r.Source != SourceFallback {
			s.refused(c.Key).Store(int64(time.Since(s.born)))
		}
	}
}

func (s *Spread) refused(key []byte) *atomic.Int64 {
	return &s.refusals[maphash.Bytes(s.seed, key)%uint64(len(s.refusals))]
}

// refusesFirst moves the part that refused last to the front; it reports whether any did lately.
func (s *Spread) refusesFirst(parts parts, now time.Time) bool {
	at, last := -1, int64(now.Sub(s.born)-refusesFor)
	for i := range parts {
		for j := range parts[i].checks {
			c := &parts[i].checks[j]
			if c.Limit.Overdraft { // all slots must charge it
				return false
			}
			if t := s.refused(c.Key).Load(); t > max(last, 0) && !c.Peek {
				at, last = i, t
			}
		}
	}
	if at > 0 {
		parts[0], parts[at] = parts[at], parts[0]
	}
	return at >= 0
}

// undo returns the charges of the parts that passed and records that in d. Charges not
// returned by the deadline stay marked as charged.
func (s *Spread) undo(ctx context.Context, all parts, d *Decision, deadline time.Time) {
	var passed parts
	for i := range all {
		if all[i].passed() {
			passed = append(passed, all[i].owned())
		}
		lateCall(all[i].err).refused()
	}
	if len(passed) == 0 {
		return
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		ctx := context.WithoutCancel(ctx)
		passed.each(func(p *part) { p.err = s.next.Return(ctx, p.checks, &p.decision) })
	}()
	late := time.NewTimer(time.Until(deadline))
	defer late.Stop()
	select {
	case <-done:
	case <-late.C:
		return
	}
	for i := range passed {
		p := &passed[i]
		if p.err != nil {
			continue
		}
		for j, at := range p.at {
			if r := &d.Results[at]; r.Charged {
				r.Charged = false
				r.Remaining += p.checks[j].Cost
			}
		}
	}
}

// Return gives back slot by slot.
func (s *Spread) Return(ctx context.Context, checks []Check, d *Decision) error {
	if s.together(checks) {
		return s.next.Return(ctx, checks, d)
	}
	parts := s.split(checks)
	var errs []error
	for i := range parts {
		p := &parts[i]
		for _, at := range p.at {
			p.decision.Results = append(p.decision.Results, d.Results[at])
		}
		errs = append(errs, s.next.Return(ctx, p.checks, &p.decision))
	}
	return errors.Join(errs...)
}

// Reset resets slot by slot.
func (s *Spread) Reset(ctx context.Context, checks []Check) error {
	var errs []error
	for _, p := range s.split(checks) {
		errs = append(errs, s.next.Reset(ctx, p.checks))
	}
	return errors.Join(errs...)
}

// part is the checks of one slot, with their indexes in the request.
type part struct {
	checks   []Check
	at       []int
	decision Decision
	err      error
}

func (p *part) passed() bool { return p.err == nil && p.decision.Allowed }

// owned returns a copy whose keys do not belong to the caller of Take.
func (p *part) owned() part {
	o := *p
	o.checks = append([]Check(nil), p.checks...)
	for i := range o.checks {
		o.checks[i].Key = append([]byte(nil), o.checks[i].Key...)
	}
	return o
}

type parts []part

// each runs f for all parts concurrently and waits; f must be bounded.
func (ps parts) each(f func(*part)) {
	var wg sync.WaitGroup
	for i := 1; i < len(ps); i++ {
		wg.Go(func() { f(&ps[i]) })
	}
	f(&ps[0])
	wg.Wait()
}

func (s *Spread) split(checks []Check) parts {
	var ps parts
next:
	for i := range checks {
		for j := range ps {
			if bytes.Equal(s.by(ps[j].checks[0].Key), s.by(checks[i].Key)) {
				ps[j].checks, ps[j].at = append(ps[j].checks, checks[i]), append(ps[j].at, i)
				continue next
			}
		}
		ps = append(ps, part{checks: []Check{checks[i]}, at: []int{i}})
	}
	return ps
}

func (s *Spread) together(checks []Check) bool {
	for i := 1; i < len(checks); i++ {
		if !bytes.Equal(s.by(checks[0].Key), s.by(checks[i].Key)) {
			return false
		}
	}
	return true
}

// Subject returns a key's hash tag, the part in braces: keys that share it live in one slot.
func Subject(key []byte) []byte {
	open := bytes.IndexByte(key, '{')
	if open < 0 {
		return key
	}
	end := bytes.IndexByte(key[open+1:], '}')
	if end <= 0 {
		return key
	}
	return key[open+1 : open+1+end]
}
