package redisstore

import (
	"context"

	"github.com/weir-edge/weir/pkg/limiter"
)

// routed is a Store that leaves alone the keys of a slot that two masters have.
type routed struct{ *Store }

// Take implements limiter.Store.
func (s routed) Take(ctx context.Context, checks []limiter.Check, d *limiter.Decision) error {
	if len(checks) == 0 {
		d.Reset(0)
		d.Allowed = true
		return nil
	}
	sh, err := s.shardFor(ctx, checks[0].Key)
	if err != nil {
		return err
	}
	return sh.breaker.Take(ctx, checks, d)
}

// Return implements limiter.Returner.
func (s routed) Return(ctx context.Context, checks []limiter.Check, d *limiter.Decision) error {
	if len(checks) == 0 {
		return nil
	}
	sh, err := s.shardFor(ctx, checks[0].Key)
	if err != nil {
		return err
	}
	return sh.breaker.Return(ctx, checks, d)
}
