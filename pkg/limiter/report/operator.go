package report

import (
	"context"

	"github.com/weir-edge/weir/pkg/limiter"
)

// peek asks the store on behalf of an operator, who wants to see what all nodes have
// counted, and adds what this node has not reported.
func (s *Store) peek(ctx context.Context, checks []limiter.Check, d *limiter.Decision) error {
	d.Reset(len(checks))
	d.Allowed = true
	r := &rest{}
	for i := range checks {
		c := &checks[i]
		if !c.Limit.Reported {
			continue
		}
		e, err := s.read(ctx, c)
		if err != nil {
			s.config.Failed(err)
			continue // split treats it as a key whose reports fail
		}
		t := e.roll(c.Limit, s.config.Clock().Microseconds()+e.offset)
		res := &d.Results[i]
		res.Allowed = e.room(c.Limit, t) >= c.Cost || c.Cost == 0
		e.describe(c, res, t)
		d.Allowed = d.Allowed && !res.Refuses(c)
	}
	r.split(checks, d)
	merge := func(part *limiter.Decision, at []int) {
		for i, pos := range at {
			d.Results[pos] = part.Results[i]
		}
		d.StoreUnavailable = d.StoreUnavailable || part.StoreUnavailable && d.Allowed
		d.Allowed = d.Allowed && part.Allowed
	}
	if len(r.down) > 0 {
		if err := s.config.Local.TakeLocal(ctx, r.down, &r.downDecision); err != nil {
			return err
		}
		merge(&r.downDecision, r.downAt)
	}
	if len(r.others) > 0 {
		if err := s.config.Next.Take(ctx, r.others, &r.otherDecided); err != nil {
			return err
		}
		merge(&r.otherDecided, r.othersAt)
	}
	return nil
}

// read returns what is known of a key after asking the store.
func (s *Store) read(ctx context.Context, c *limiter.Check) (*entry, error) {
	known := entry{limit: c.Limit, key: string(c.Key), offset: s.offset.Load()}
	sh := s.shard(c.Key)
	sh.Lock()
	if e := sh.entries[string(c.Key)]; e != nil {
		known = *e
	}
	sh.Unlock()
	from := s.config.Clock()
	known.limit = c.Limit
	known.roll(c.Limit, from.Microseconds()+known.offset)
	known.settled = false
	q := [1]limiter.Report{known.question(&round{}, 0, 0)}
	s.config.Reporter.Report(ctx, q[:])
	if q[0].Err != nil {
		return nil, q[0].Err
	}
	known.offset = q[0].Now - ((from + s.config.Clock()) / 2).Microseconds()
	// Counts in flight may already be included: better twice than not at all.
	flying, late := known.flying, known.flyLate
	if known.limit.Algorithm == limiter.TokenBucket {
		known.level, known.levelAt, known.heard = q[0].Level, q[0].Now, q[0].Now
	} else {
		known.hear(&q[0])
	}
	known.flying, known.flyLate = flying, late
	return &known, nil
}

// Reset deletes the counters of these checks. Other nodes learn of it with their next
// report; what they have admitted and not reported counts again.
func (s *Store) Reset(ctx context.Context, checks []limiter.Check) error {
	var others []limiter.Check
	var names [][]byte
	for i := range checks {
		c := &checks[i]
		if !c.Limit.Reported {
			others = append(others, *c)
			continue
		}
		e, err := s.read(ctx, c) // to learn the store's time, and fail if it is unreachable
		if err != nil {
			return err
		}
		if c.Limit.Algorithm == limiter.TokenBucket {
			names = append(names, c.Key)
			continue
		}
		for _, start := range []int64{e.start, e.start - c.Limit.Window.Microseconds()} {
			names = append(names, limiter.AppendWindow(nil, c.Key, start))
		}
	}
	if len(names) > 0 {
		if err := s.config.Reporter.Forget(ctx, names); err != nil {
			return err
		}
		if err := s.config.Local.Reset(ctx, reportedOnly(checks)); err != nil {
			return err
		}
	}
	for i := range checks {
		if checks[i].Limit.Reported {
			s.reset(checks[i].Key)
		}
	}
	if len(others) == 0 {
		return nil
	}
	return s.config.Next.Reset(ctx, others)
}

func reportedOnly(checks []limiter.Check) (list []limiter.Check) {
	for i := range checks {
		if checks[i].Limit.Reported {
			list = append(list, checks[i])
		}
	}
	return list
}

// reset forgets what was counted, and what is in flight.
func (s *Store) reset(key []byte) {
	sh := s.shard(key)
	sh.Lock()
	defer sh.Unlock()
	if e := sh.entries[string(key)]; e != nil {
		e.count, e.before, e.level = 0, 0, 0
		e.pending, e.late, e.flying, e.flyLate = 0, 0, 0, 0
		e.refuse, e.rate, e.others, e.expires = 0, 0, 0, false
		e.gained, e.spanned, e.spent = 0, 0, false
		e.forgets++
	}
}

// ForgetInactive drops the counts of removed rules. A changed rule applies to its keys from the next
// request on.
func (s *Store) ForgetInactive(holds func(*limiter.Limit) bool) {
	s.usages.Range(func(rule, u any) bool {
		if u := u.(*usage); u.keys.Load() == 0 && !holds(u.limit.Load()) {
			s.usages.Delete(rule)
		}
		return true
	})
}
