package main

import (
	"context"
	"fmt"
)

// clientScript makes wrk act as many clients behind a trusted proxy, chosen uniformly.
const clientScript = `
local requests, n = {}, %d
init = function()
  math.randomseed(1)
  for i = 1, n do
    requests[i] = wrk.format("GET", "/hello", {["X-Forwarded-For"] = "10." .. math.floor(i / 65536) .. "." .. math.floor(i / 256) %% 256 .. "." .. i %% 256})
  end
end
request = function() return requests[math.random(n)] end
`

// behavior compares the same requests with and without judging clients by the shipped policy.
func (b *bench) behavior(ctx context.Context) error {
	origin, _, redis, err := b.proxies()
	if err != nil {
		return err
	}
	many := []string{"-s", b.write("clients.lua", fmt.Sprintf(clientScript, users))}
	const rule = "  - {id: per-client, key: [client_ip], algorithm: rolling_window, limit: 1000, window: 1m}\n"
	policy := fmt.Sprintf("policy: {file: %q}\n", b.write("policy.yaml", "mode: shadow\n"))
	var all []*contender
	for _, v := range []struct{ name, more string }{
		{"weir without a policy", ""},
		{"weir, every client evaluated by the shipped policy", policy},
	} {
		addr, err := b.startEdge(fmt.Sprint("behavior-", len(all)), origin, redis, rule, "trusted_proxies: [127.0.0.1/32]\n"+v.more)
		if err != nil {
			return err
		}
		c := b.by(v.name, addr, true, many...)
		if v.more != "" {
			c.goal = 0.97
		}
		all = append(all, c)
	}
	return b.compare(ctx, "behavior", fmt.Sprintf("Proxied, one strict check per request, %d clients uniform, %d connections", users, connections), "requests", all...)
}
