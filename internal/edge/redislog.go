package edge

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-edge/weir/internal/logs"
)

// LogRedis redirects what the Redis client would print to stderr, many lines per second while
// a server is unreachable, to this program's log: one line per second at most. The client has
// one logger for the whole process, so the program sets it.
func LogRedis(log *slog.Logger) { redis.SetLogger(&redisLog{log: log}) }

type redisLog struct {
	log *slog.Logger
	logs.Sampler
}

// Printf implements the client's logging interface.
func (l *redisLog) Printf(_ context.Context, format string, v ...any) {
	if skipped, ok := l.Sample(time.Now()); ok {
		l.log.Debug("redis client", "message", fmt.Sprintf(format, v...), "not_logged", skipped)
	}
}
