package main

import (
	"context"
	"fmt"
	"os"
	"strings"
)

const users = 100_000

// userScript makes wrk send as one of many users, chosen uniformly. Requests are
// rendered in advance, so that generating the load costs little.
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

// startEdge runs the edge with one rule, in front of the origin; an empty redis selects
// the memory store.
func (b *bench) startEdge(name, origin, redis, rule string) (string, error) {
	public, admin := freeAddr(), freeAddr()
	rules := b.write(name+"-rules.yaml", "rules:\n"+rule)
	store := "{kind: memory}"
	if redis != "" {
		store = fmt.Sprintf("{kind: redis, timeout: 100ms, redis: {mode: single, addrs: [%q]}}", redis)
	}
	config := b.write(name+".yaml", fmt.Sprintf(`
listen: {public: %q, admin: %q}
upstreams: [{url: "http://%s"}]
store: %s
rules: {source: file, file: %q}
log: {level: warn}
`, public, admin, origin, store, rules))
	b.admins[public] = admin
	return public, b.start(public, b.edge, "-config", config)
}

func (b *bench) startRedis() (string, error) {
	addr := freeAddr()
	_, port, _ := strings.Cut(addr, ":")
	return addr, b.start(addr, "redis-server", "--port", port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", b.dir)
}

// proxy: every request is decided in Redis and forwarded.
func (b *bench) proxy(ctx context.Context) error {
	origin, bare, nginx := freeAddr(), freeAddr(), freeAddr()
	if err := b.self(origin, "origin"); err != nil {
		return err
	}
	if err := b.self(bare, "proxy", "-origin", origin); err != nil {
		return err
	}
	if err := b.startNginx(nginx, origin, "limit_req_zone $http_x_user zone=z:64m rate=1000r/s;", "limit_req zone=z burst=1000 nodelay;"); err != nil {
		return err
	}
	redis, err := b.startRedis()
	if err != nil {
		return err
	}
	const rule = "  - {id: per-user, key: [\"header:X-User\"], algorithm: %s, limit: 1000, window: 1m}\n"
	targets := map[string]string{}
	for _, algorithm := range []string{"rolling_window", "leaky_bucket", "fixed_window"} {
		if targets[algorithm], err = b.startEdge(algorithm, origin, redis, fmt.Sprintf(rule, strings.Replace(algorithm, "leaky_bucket", "leaky_bucket, burst: 1000", 1))); err != nil {
			return err
		}
	}
	inMemory, err := b.startEdge("in-memory", origin, "", fmt.Sprintf(rule, "rolling_window"))
	if err != nil {
		return err
	}
	script := b.write("users.lua", fmt.Sprintf(userScript, users, 1))
	at := func(addr string) func(context.Context) (sample, error) {
		return func(ctx context.Context) (sample, error) { return b.wrk(ctx, addr, script) }
	}
	return b.compare(ctx, fmt.Sprintf("Proxied, one check a request, %d users uniform, %d connections", users, connections),
		&contender{name: "bare fasthttp reverse proxy", measure: at(bare)},
		&contender{name: "nginx proxy, limit_req (this machine only)", measure: at(nginx)},
		&contender{name: "weir, memory store, rolling_window", measure: at(inMemory)},
		&contender{name: "weir, Redis, rolling_window", measure: at(targets["rolling_window"])},
		&contender{name: "weir, Redis, leaky_bucket", measure: at(targets["leaky_bucket"])},
		&contender{name: "weir, Redis, fixed_window", measure: at(targets["fixed_window"])},
	)
}

// refuse: one key that has used up its limit.
func (b *bench) refuse(ctx context.Context) error {
	origin, bare, same, nginx := freeAddr(), freeAddr(), freeAddr(), freeAddr()
	if err := b.self(origin, "origin"); err != nil {
		return err
	}
	if err := b.self(bare, "refuse"); err != nil {
		return err
	}
	if err := b.self(same, "refuse-same"); err != nil {
		return err
	}
	if err := b.startNginx(nginx, origin, "limit_req_zone $binary_remote_addr zone=z:1m rate=1r/m;", "limit_req zone=z; limit_req_status 429;"); err != nil {
		return err
	}
	redis, err := b.startRedis()
	if err != nil {
		return err
	}
	edge, err := b.startEdge("refuse", origin, redis, "  - {id: per-client, key: [client_ip], algorithm: rolling_window, limit: 1, window: 10m}\n")
	if err != nil {
		return err
	}
	at := func(addr string) func(context.Context) (sample, error) {
		return func(ctx context.Context) (sample, error) { return b.wrk(ctx, addr, "") }
	}
	return b.compare(ctx, fmt.Sprintf("Refusing one hot key, %d connections", connections),
		&contender{name: "bare fasthttp 429, a short message", measure: at(bare)},
		&contender{name: "bare fasthttp 429, weir's message", measure: at(same)},
		&contender{name: "nginx limit_req", measure: at(nginx)},
		&contender{name: "weir, refusal remembered", measure: at(edge)},
	)
}

func (b *bench) startNginx(addr, origin, zone, limit string) error {
	config := b.write("nginx.conf", fmt.Sprintf(`
worker_processes 1;
daemon off;
pid %[1]s/nginx.pid;
error_log %[1]s/nginx-error.log crit;
events { worker_connections 4096; }
http {
  access_log off;
  keepalive_requests 100000000;
  client_body_temp_path %[1]s; proxy_temp_path %[1]s; fastcgi_temp_path %[1]s; uwsgi_temp_path %[1]s; scgi_temp_path %[1]s;
  %[2]s
  upstream origin { server %[3]s; keepalive 128; }
  server {
    listen %[4]s;
    location / { %[5]s proxy_http_version 1.1; proxy_set_header Connection ""; proxy_pass http://origin; }
  }
}
`, b.dir, zone, origin, addr, limit))
	return b.start(addr, "nginx", "-c", config, "-p", b.dir)
}
