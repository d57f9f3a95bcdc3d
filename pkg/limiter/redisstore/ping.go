package redisstore

import (
	"context"

	"github.com/redis/go-redis/v9"
)

// Ping returns an error if Redis does not answer now.
func (s *Store) Ping(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.config.dialTimeout())
	defer cancel()
	if s.cluster != nil {
		return s.cluster.ForEachMaster(ctx, func(ctx context.Context, c *redis.Client) error { return c.Ping(ctx).Err() })
	}
	return s.single.Ping(ctx).Err()
}

// Await waits until Redis has answered or failed to, or until ctx ends. A Store used
// earlier may not know the masters of its keys yet.
func (s *Store) Await(ctx context.Context) error {
	select {
	case <-s.answered:
		return s.Ping(ctx)
	case <-ctx.Done():
		return ctx.Err()
	}
}
