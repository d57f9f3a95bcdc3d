package main

import (
	"context"
	"fmt"
)

// forward measures nginx asking the edge about every request it forwards, with the configuration
// in docs/GATEWAYS.md.
func (b *bench) forward(ctx context.Context) error {
	origin, _, redis, err := b.proxies()
	if err != nil {
		return err
	}
	plain := freeAddr()
	if err := b.startNginx(plain, origin, "", ""); err != nil {
		return err
	}
	script := b.write("users.lua", fmt.Sprintf(userScript, users, 1))
	all := []*contender{b.by("nginx proxy alone", plain, false, "-s", script)}
	for _, v := range []struct {
		name, rule string
		goal       float64
		args       []string
	}{
		{"nginx with weir, Redis, rolling_window", `key: ["header:X-User"], algorithm: rolling_window, limit: 1000, window: 1m`, 0.4, []string{"-s", script}},
		{"nginx with weir, one tenant, token_bucket, leased", `key: ["header:X-Tenant"], algorithm: token_bucket, consistency: leased, limit: 100000000, window: 1m`, 0.5, []string{"-H", "X-Tenant: big"}},
	} {
		decide, nginx := freeAddr(), freeAddr()
		name := fmt.Sprint("forward-", len(all))
		edge, err := b.startEdge(name, origin, redis, "  - {id: asked, "+v.rule+"}\n", fmt.Sprintf("  decide: {address: %q, from: [127.0.0.1]}\n", decide))
		if err != nil {
			return err
		}
		if err := b.startGateway(gatewayKinds[0], name, nginx, origin, decide); err != nil {
			return err
		}
		b.admins[nginx] = b.admins[edge] // the edge's profile shows the cost of the questions
		c := b.by(v.name, nginx, true, v.args...)
		c.goal = v.goal
		all = append(all, c)
	}
	return b.compare(ctx, "forward", fmt.Sprintf("nginx with and without a call to weir for each request, %d connections", connections), "requests", all...)
}
