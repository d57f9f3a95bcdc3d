package redisstore

import (
	"context"

	"github.com/redis/go-redis/v9"

	"github.com/weir-edge/weir/pkg/limiter"
)

// DoWithAcross decides calls on a master of a cluster after changing the sources of the
// scripts that serve several slots, and reports whether slots have their own scripts from
// then on.
func DoWithAcross(ctx context.Context, cluster *redis.ClusterClient, master *redis.Client, change func(source string) string, calls []*limiter.Call) (apart bool) {
	n := newNode(master, cluster, nil)
	scripts := *n.scripts
	scripts.across = map[*script]*script{}
	for plain, across := range n.scripts.across {
		scripts.across[plain] = newScript(change(across.src))
	}
	n.scripts = &scripts
	n.Do(ctx, calls)
	return !n.sharesSlots()
}

// Do decides calls in one round trip to what is taken for their master.
func Do(ctx context.Context, cluster *redis.ClusterClient, master *redis.Client, calls []*limiter.Call) {
	newNode(master, cluster, nil).Do(ctx, calls)
}
