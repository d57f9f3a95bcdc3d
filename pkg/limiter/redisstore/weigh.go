package redisstore

import (
	"context"
	"errors"

	"github.com/redis/go-redis/v9"
)

// Memory returns how many bytes of Redis's memory a key takes, with all that Redis keeps of it;
// 0 if it does not exist.
func (s *Store) Memory(ctx context.Context, key []byte) (bytes int64, err error) {
	if s.cluster != nil {
		bytes, err = s.cluster.MemoryUsage(ctx, string(key)).Result()
	} else {
		bytes, err = s.single.MemoryUsage(ctx, string(key)).Result()
	}
	if errors.Is(err, redis.Nil) {
		return 0, nil
	}
	return bytes, err
}
