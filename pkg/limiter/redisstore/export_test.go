package redisstore

import (
	"context"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-edge/weir/pkg/limiter"
	"github.com/weir-edge/weir/pkg/limiter/redisstore/redirect"
)

// DoWithAcross decides calls on a master of a cluster after changing the sources of the
// scripts that serve several slots, and reports whether slots have their own scripts from
// then on.
func DoWithAcross(ctx context.Context, cluster *redis.ClusterClient, master *redis.Client, change func(source string) string, calls []*limiter.Call) (apart bool) {
	return do(ctx, cluster, master, calls, func(n *node) {
		scripts := *n.scripts
		scripts.severalSlots = map[*script]*script{}
		for plain, shared := range n.scripts.severalSlots {
			scripts.severalSlots[plain] = newScript(change(shared.src))
		}
		scripts.index()
		n.scripts = &scripts
	})
}

// Do decides calls as from what is taken for their master.
func Do(ctx context.Context, cluster *redis.ClusterClient, master *redis.Client, calls []*limiter.Call) {
	do(ctx, cluster, master, calls, func(*node) {})
}

func do(ctx context.Context, cluster *redis.ClusterClient, master *redis.Client, calls []*limiter.Call, change func(*node)) (apart bool) {
	servers := redirect.NewServers(func(addr string) *redis.Options { return &redis.Options{Addr: addr} })
	defer servers.Close()
	n := newNode(master, cluster, servers, nil)
	change(n)
	n.sender = redirect.NewSender(cluster, servers, n.scripts.sources)
	n.Do(ctx, calls, time.Time{})
	n.Follow(ctx, slices.DeleteFunc(slices.Clone(calls), func(c *limiter.Call) bool { return c.Elsewhere == nil }))
	return !n.sharesSlots()
}
