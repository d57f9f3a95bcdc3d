package redisstore

import (
	"context"
	"strconv"
	"strings"
	"time"
)

// Eviction is what a master does with counters when its memory is full. An evicted
// counter lets its client start over.
type Eviction struct {
	Policy  string // maxmemory-policy
	May     bool   // memory is bounded and the policy is not noeviction
	Evicted int64  // keys since the server started
}

// inspectEvery is how often to ask a master what it evicts.
const inspectEvery = time.Minute

// inspect asks a master what it evicts. If a provider refuses CONFIG, INFO answers; a
// server that refuses INFO too stays unknown.
func (sh *shard) inspect(ctx context.Context, tell func(addr string, e *Eviction)) {
	if tell == nil {
		return
	}
	memory, err := sh.client.Info(ctx, "memory").Result()
	if err != nil {
		return
	}
	stats, err := sh.client.Info(ctx, "stats").Result()
	if err != nil {
		return
	}
	e := &Eviction{Policy: infoField(memory, "maxmemory_policy")}
	e.May = e.Policy != "" && e.Policy != "noeviction" && infoField(memory, "maxmemory") != "0"
	e.Evicted, _ = strconv.ParseInt(infoField(stats, "evicted_keys"), 10, 64)
	tell(sh.client.Options().Addr, e)
}

// infoField returns the value of a "name:value" line of INFO, or "".
func infoField(info, name string) string {
	for line := range strings.Lines(info) {
		if n, value, _ := strings.Cut(strings.TrimSpace(line), ":"); n == name {
			return value
		}
	}
	return ""
}
