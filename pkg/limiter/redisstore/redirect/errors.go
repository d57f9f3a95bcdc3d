package redirect

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// Reply is an error that Redis or a script sent.
type Reply string

// Error implements error.
func (r Reply) Error() string { return string(r) }

// RedisError implements redis.Error.
func (Reply) RedisError() {}

// ErrElsewhere sends a command to the owner of its key.
var ErrElsewhere redis.Error = Reply("ELSEWHERE another master has a key")

// NotLoaded reports whether the server lacks a command's script.
func NotLoaded(err error) bool { return redis.HasErrorPrefix(err, "NOSCRIPT") }

// Moved reports whether another master has to run a command, or may in a moment.
func Moved(err error) bool {
	return redis.HasErrorPrefix(err, "MOVED") || redis.HasErrorPrefix(err, "ASK") || errors.Is(err, ErrElsewhere) || unsettled(err)
}

// unsettled reports whether nobody owns a slot for the moment, or two masters have some of
// its keys each.
func unsettled(err error) bool { return redis.HasErrorPrefix(err, "CLUSTERDOWN") || Divides(err) }

// Divides reports whether two masters have some of a command's keys each.
func Divides(err error) bool { return redis.HasErrorPrefix(err, "TRYAGAIN") }

// Failure reports whether the shard, not the call, is at fault: another node may have
// taken over.
func Failure(err error) bool {
	var reply redis.Error
	if !errors.As(err, &reply) {
		return true // network, timeout, pool
	}
	for _, prefix := range []string{
		"READONLY", "CLUSTERDOWN", "MASTERDOWN", "LOADING", "BUSY", "OOM", "NOAUTH", "NOPERM", "WRONGPASS",
		"MISCONF", "NOREPLICAS", "MOVED", "ASK", "TRYAGAIN", "NOSCRIPT", "max number of clients",
		"Protocol error", // a long command before authentication
	} {
		if redis.HasErrorPrefix(err, prefix) {
			return true
		}
	}
	return false
}

// confirmWithin is how long a replica may take to receive a write.
const confirmWithin = 200 * time.Millisecond

// confirm fails the commands unless a replica has received what this connection wrote. It
// does not wait for a server that has no replicas or does not say whether it has any.
func confirm(ctx context.Context, conn *redis.Conn, cmds []redis.Cmder) {
	info, err := conn.Info(ctx, "replication").Result()
	if err != nil || !strings.Contains(info, "connected_slaves:") || strings.Contains(info, "connected_slaves:0") {
		return
	}
	n, err := conn.Wait(ctx, 1, confirmWithin).Result()
	if err == nil && n < 1 {
		err = fmt.Errorf("no replica received the write within %s", confirmWithin)
	}
	for _, cmd := range cmds {
		if err != nil && cmd.Err() == nil {
			cmd.SetErr(err)
		}
	}
}
