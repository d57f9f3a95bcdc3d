package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-edge/weir/tools/internal/paired"
)

const (
	users     = 100_000
	perMinute = 1000 // requests of a user that pass
)

// userScript makes wrk act as many users, chosen uniformly. It renders the requests in advance,
// so that generating load stays cheap.
const userScript = `
local requests, n = {}, %d
init = function()
  math.randomseed(%d)
  for i = 1, n do
    requests[i] = wrk.format("GET", "/hello", {["X-User"] = "user-" .. i})
  end
end
request = function() return requests[math.random(n)] end
`

func (b *bench) self(addr, role string, more ...string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	return b.start(addr, self, append([]string{"-role", role, "-listen", addr}, more...)...)
}

// startEdge runs the edge with these rules in front of the origin, by http:// if it is a mere address; an empty redis selects the
// memory store, and one that begins with clusterOf a Cluster. more extends its configuration; leading indented lines of it extend listen.
func (b *bench) startEdge(name, origin, redis, rules, more string) (string, error) {
	public, admin := freeAddr(), freeAddr()
	file := b.write(name+"-rules.yaml", "rules:\n"+rules)
	store := "{kind: memory}"
	if redis != "" {
		addr, cluster := strings.CutPrefix(redis, clusterOf)
		mode := "single"
		if cluster {
			mode = "cluster"
		}
		store = fmt.Sprintf("{kind: redis, timeout: 100ms, redis: {mode: %s, addrs: [%q]}}", mode, addr)
	}
	if !strings.Contains(origin, "://") {
		origin = "http://" + origin
	}
	config := b.write(name+".yaml", fmt.Sprintf(`
listen:
  public: %q
  admin: %q
%s
upstreams: [{url: %q}]
store: %s
rules: {source: file, file: %q}
log: {level: warn}
`, public, admin, more, origin, store, file))
	b.admins[public] = admin
	return public, b.start(public, b.edge, "-config", config)
}

func (b *bench) startRedis(more ...string) (string, error) {
	addr := freeAddr()
	_, port, _ := strings.Cut(addr, ":")
	return addr, b.start(addr, "redis-server", append([]string{"--port", port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", b.dir}, more...)...)
}

// clusterOf begins what stands for a Redis Cluster with one master: clusterOf and its address.
const clusterOf = "cluster of "

func (b *bench) startCluster(ctx context.Context) (string, error) {
	_, bus, _ := strings.Cut(freeAddr(), ":")
	addr, err := b.startRedis("--cluster-enabled", "yes", "--cluster-announce-ip", "127.0.0.1", "--cluster-port", bus)
	if err != nil {
		return "", err
	}
	client := redis.NewClient(&redis.Options{Addr: addr})
	defer client.Close()
	if err := client.ClusterAddSlotsRange(ctx, 0, 16383).Err(); err != nil {
		return "", err
	}
	for {
		switch info, err := client.ClusterInfo(ctx).Result(); {
		case err != nil:
			return "", err
		case strings.Contains(info, "cluster_state:ok"):
			return clusterOf + addr, nil
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// proxies starts the baselines of the proxied parts.
func (b *bench) proxies() (origin, bare, redis string, err error) {
	origin, bare = freeAddr(), freeAddr()
	if err := b.self(origin, "origin"); err != nil {
		return "", "", "", err
	}
	if err := b.self(bare, "proxy", "-origin", origin); err != nil {
		return "", "", "", err
	}
	redis, err = b.startRedis()
	return origin, bare, redis, err
}

// by returns a contender that wrk loads at addr with these arguments.
func (b *bench) by(name, addr string, ours bool, args ...string) *contender {
	return &contender{ours: ours, Contender: paired.Contender{Name: name, Measure: func(ctx context.Context, _ int) (paired.Sample, error) {
		return b.wrk(ctx, addr, args...)
	}}}
}

// proxy measures requests decided in Redis and forwarded.
func (b *bench) proxy(ctx context.Context) error {
	origin, bare, redis, err := b.proxies()
	if err != nil {
		return err
	}
	nginx := freeAddr()
	if err := b.startNginx(nginx, origin, "limit_req_zone $http_x_user zone=z:64m rate=1000r/s;", "limit_req zone=z burst=1000 nodelay;"); err != nil {
		return err
	}
	script := b.write("users.lua", fmt.Sprintf(userScript, users, 1))
	all := []*contender{
		b.by("bare fasthttp reverse proxy", bare, false, "-s", script),
		b.by("nginx proxy, limit_req (this machine only)", nginx, false, "-s", script),
	}
	leastAddr := freeAddr()
	if err := b.self(leastAddr, "proxy-least", "-origin", origin, "-redis", redis); err != nil {
		return err
	}
	all = append(all, b.by("bare fasthttp reverse proxy, Redis, the least script", leastAddr, false, "-s", script))
	const rule = "  - {id: per-user, key: [\"header:X-User\"], algorithm: %s, limit: %d, window: 1m}\n"
	for _, v := range []struct {
		name, algorithm, store string
		goal                   float64
	}{
		{"weir, memory store, rolling_window", "rolling_window", "", 0},
		{"weir, Redis, rolling_window", "rolling_window", redis, 0.65},
		{"weir, Redis, leaky_bucket", "leaky_bucket, burst: 1000", redis, 0},
		{"weir, Redis, fixed_window", "fixed_window", redis, 0},
	} {
		addr, err := b.startEdge(fmt.Sprint("proxy-", len(all)), origin, v.store, fmt.Sprintf(rule, v.algorithm, perMinute), "")
		if err != nil {
			return err
		}
		c := b.by(v.name, addr, true, "-s", script)
		c.goal = v.goal
		all = append(all, c)
	}
	return b.compare(ctx, "proxy", fmt.Sprintf("Proxied, one strict check per request, %d users uniform, %d connections", users, connections), "requests", all...)
}

// leased measures one tenant far below its limit, which costs Redis next to nothing.
func (b *bench) leased(ctx context.Context) error {
	origin, bare, redis, err := b.proxies()
	if err != nil {
		return err
	}
	tenant := []string{"-H", "X-Tenant: big"}
	all := []*contender{b.by("bare fasthttp reverse proxy", bare, false, tenant...)}
	const rule = "  - {id: per-tenant, key: [\"header:X-Tenant\"], algorithm: %s, limit: 100000000, window: 1m}\n"
	for _, v := range []struct {
		name, algorithm string
		goal, calls     float64
	}{
		{"weir, token_bucket, strict", "token_bucket", 0, 0},
		{"weir, token_bucket, leased", "token_bucket, consistency: leased", 0.85, 0.01},
		{"weir, sliding_window, leased", "sliding_window, consistency: leased", 0.85, 0.01},
	} {
		addr, err := b.startEdge(fmt.Sprint("leased-", len(all)), origin, redis, fmt.Sprintf(rule, v.algorithm), "")
		if err != nil {
			return err
		}
		c := b.by(v.name, addr, true, tenant...)
		c.goal, c.calls, c.asks = v.goal, v.calls, true
		c.Measure = b.counted(redis, c.Measure)
		all = append(all, c)
	}
	return b.compare(ctx, "leased", fmt.Sprintf("Proxied, one tenant far below its limit, %d connections", connections), "requests", all...)
}
