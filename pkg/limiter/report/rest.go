package report

import (
	"context"

	"github.com/weir-edge/weir/pkg/limiter"
)

// rest is the part of a request that this node cannot decide from what it knows.
type rest struct {
	down, others               []limiter.Check // keys whose reports fail; other limits
	downAt, othersAt           []int
	downDecision, otherDecided limiter.Decision

	space struct { // for few checks, so that a new rest is one allocation
		down, others     [4]limiter.Check
		downAt, othersAt [4]int
		results          [2][4]limiter.Result
	}
}

func newRest() any {
	r := &rest{}
	r.down, r.others = r.space.down[:0], r.space.others[:0]
	r.downAt, r.othersAt = r.space.downAt[:0], r.space.othersAt[:0]
	r.downDecision.Results, r.otherDecided.Results = r.space.results[0][:0], r.space.results[1][:0]
	return r
}

// takeRest decides what decide did not: keys whose reports fail, by their rules' failure
// policies, then other limits by the next store.
func (s *Store) takeRest(ctx context.Context, checks []limiter.Check, d *limiter.Decision) error {
	r := s.rests.Get().(*rest)
	defer s.rests.Put(r)
	r.split(checks, d)
	refused, unavailable := !d.Allowed, false // by a limit; because a store is unreachable
	merge := func(part *limiter.Decision, at []int) {
		for i, pos := range at {
			d.Results[pos] = part.Results[i]
		}
		d.Allowed = d.Allowed && part.Allowed
		refused = refused || !part.Allowed && !part.StoreUnavailable
		unavailable = unavailable || part.StoreUnavailable
	}
	if len(r.down) > 0 && d.Allowed {
		if err := s.config.Local.TakeLocal(ctx, r.down, &r.downDecision); err != nil {
			return err
		}
		merge(&r.downDecision, r.downAt)
	} else {
		r.downAt = r.downAt[:0]
	}
	if before := d.Allowed; len(r.others) > 0 && (before || countsDenied(r.others)) {
		if err := s.config.Next.Take(ctx, r.others, &r.otherDecided); err != nil {
			s.giveBackDown(ctx, r)
			return err
		}
		merge(&r.otherDecided, r.othersAt)
		if !before && r.otherDecided.Allowed {
			if s.config.Next.Return(ctx, r.others, &r.otherDecided) == nil {
				for _, pos := range r.othersAt {
					d.Results[pos].Charged = false
				}
			}
		}
	}
	if d.StoreUnavailable = unavailable && !refused; !d.Allowed {
		s.giveBackDown(ctx, r)
	}
	return nil
}

// giveBackDown returns what TakeLocal charged for a request that another limit refused.
func (s *Store) giveBackDown(ctx context.Context, r *rest) {
	if len(r.downAt) > 0 && r.downDecision.Allowed {
		_ = s.config.Local.Return(ctx, r.down, &r.downDecision) // in this process
	}
}

func (r *rest) split(checks []limiter.Check, d *limiter.Decision) {
	r.down, r.others, r.downAt, r.othersAt = r.down[:0], r.others[:0], r.downAt[:0], r.othersAt[:0]
	for i := range checks {
		switch {
		case !checks[i].Limit.Reported:
			r.others, r.othersAt = append(r.others, checks[i]), append(r.othersAt, i)
		case d.Results[i].Source == limiter.SourceNone:
			r.down, r.downAt = append(r.down, checks[i]), append(r.downAt, i)
		}
	}
}
