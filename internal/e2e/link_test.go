package e2e

import (
	"fmt"
	"strings"
	"testing"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/testenv"
)

// link puts a degradable link in front of a server.
func link(t *testing.T, upstream string) *toxiproxy.Proxy {
	t.Helper()
	server := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(prometheus.NewRegistry()), zerolog.Nop())
	p := toxiproxy.NewProxy(server, "redis", "127.0.0.1:0", upstream)
	require.NoError(t, p.Start())
	t.Cleanup(p.Stop)
	return p
}

// On a link slower than the budget, one that drops everything, and one that is cut, no request
// fails or waits. Redis decides again once the link is good.
func TestBadLink(t *testing.T) {
	server := testenv.Redis(t, testenv.Options{})
	p := link(t, server.Addr)
	nodes := edges(t, 1, redisConfig(origin(t, nil), "single", []string{p.Listen}, budget, 1, ""), roomyRules)
	awaitRedis(t, nodes, "/", victim)

	for name, toxic := range map[string]string{
		"slow":       `{"name":"bad","type":"latency","attributes":{"latency":200}}`,
		"black hole": `{"name":"bad","type":"timeout","attributes":{"timeout":0}}`,
		"reset":      `{"name":"bad","type":"reset_peer","attributes":{"timeout":0}}`,
	} {
		t.Run(name, func(t *testing.T) {
			before := metrics(t, nodes[0], "weir_decision_seconds")
			punctual, stop := timers(t), load(nodes)
			awaitRequests(t, nodes[0], 50)
			_, err := p.Toxics.AddToxicJson(strings.NewReader(toxic))
			require.NoError(t, err)
			eventually(t, testenv.Patience, "decisions fall back", func() bool { return decidedBy(nodes[0]) == "fallback" })
			awaitRequests(t, nodes[0], 2000)
			require.NoError(t, p.Toxics.RemoveToxic(t.Context(), "bad"))
			eventually(t, testenv.Patience, "Redis decides again", func() bool { return decidedBy(nodes[0]) == "redis" })
			asked, bad := stop()
			inTime := punctual()
			require.Positive(t, asked)
			require.Zero(t, bad)
			after := metrics(t, nodes[0], "weir_decision_seconds")
			decisionsInBudget(t, func(name string) float64 { return after[name] - before[name] }, inTime)
		})
	}
}

func decidedBy(n *testenv.EdgeNode) string {
	e, err := explain(n, "/", victim)
	if err != nil || len(e.Rules) == 0 {
		return fmt.Sprint(err)
	}
	return e.Rules[0].Source
}
