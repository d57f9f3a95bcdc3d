package edge

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weir-edge/weir/internal/edge/config"
)

const perClient = "rules: [{id: per-client, key: [client_ip], limit: 1000, window: 1h}]"

func trusting(prefixes ...string) func(*config.Config) {
	return func(c *config.Config) { c.TrustedProxies = prefixes }
}

func TestSpoofedForwardedForIsNoBypass(t *testing.T) {
	n := start(t, setup{rules: oneRule, config: trusting("10.0.0.0/8")}) // not 127.0.0.1
	for i := range 3 {
		require.Equal(t, 200, n.get("/", fmt.Sprintf("X-Forwarded-For: 203.0.113.%d", i)).status)
	}
	for _, spoof := range []string{"X-Forwarded-For: 203.0.113.9", "X-Real-Ip: 203.0.113.9", "Forwarded: for=203.0.113.9",
		"X-Forwarded-For: 127.0.0.2, 10.0.0.1", "True-Client-Ip: 203.0.113.9"} {
		require.Equal(t, 429, n.get("/", spoof).status, spoof)
	}
}

func TestTrustedChain(t *testing.T) {
	n := start(t, setup{rules: perClient, config: trusting("127.0.0.1", "10.0.0.0/8", "2001:db8:ff::/48")})
	for _, c := range []struct {
		name   string
		hops   []string // X-Forwarded-For lines
		client string
	}{
		{"no header", nil, "127.0.0.1"},
		{"one hop", []string{"203.0.113.1"}, "203.0.113.1"},
		{"only the last untrusted hop counts", []string{"198.51.100.66, 203.0.113.2"}, "203.0.113.2"},
		{"through a chain of trusted ones", []string{"198.51.100.66, 203.0.113.3, 10.1.2.3,10.9.9.9"}, "203.0.113.3"},
		{"several lines are one list", []string{"198.51.100.66", "203.0.113.4, 10.1.2.3", "10.9.9.9"}, "203.0.113.4"},
		{"all trusted: the farthest", []string{"10.0.0.5, 10.0.0.6"}, "10.0.0.5"},
		{"malformed: the proxy before it", []string{"203.0.113.5, unknown, 10.0.0.7"}, "10.0.0.7"},
		{"malformed at the end: the peer", []string{"203.0.113.5, 10.0.0.7, <script>"}, "127.0.0.1"},
		{"empty element", []string{"203.0.113.5, , 10.0.0.8"}, "10.0.0.8"},
		{"empty header", []string{""}, "127.0.0.1"},
		{"only commas", []string{",,,,"}, "127.0.0.1"},
		{"too long to be an address", []string{"203.0.113.5, " + strings.Repeat("1", 4000)}, "127.0.0.1"},
		{"not an address: too many parts", []string{"203.0.113.5.6"}, "127.0.0.1"},
		{"with a port", []string{"203.0.113.6:50123"}, "203.0.113.6"},
		{"IPv6 with a port", []string{"[2001:db8:1::5]:443"}, "2001:db8:1::5"},
		{"IPv6 in brackets", []string{"203.0.113.5, [2001:db8:3::5]"}, "2001:db8:3::5"},
		{"IPv6 through a trusted IPv6 in brackets", []string{"2001:db8:4::5, [2001:db8:ff::1]"}, "2001:db8:4::5"},
		{"IPv4 in brackets", []string{"203.0.113.5, [203.0.113.6]"}, "127.0.0.1"},
		{"IPv6 through a trusted IPv6", []string{"2001:db8:2::5, 2001:db8:ff::1"}, "2001:db8:2::5"},
		{"IPv4-mapped counts as IPv4", []string{"::ffff:203.0.113.7"}, "203.0.113.7"},
		{"IPv4-mapped trusted hop", []string{"203.0.113.8, ::ffff:10.0.0.9"}, "203.0.113.8"},
		{"zone", []string{"fe80::1%eth0"}, "fe80::1"},
		{"blanks and tabs", []string{" \t 203.0.113.9 \t"}, "203.0.113.9"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var headers []string
			for _, h := range c.hops {
				headers = append(headers, "X-Forwarded-For: "+h)
			}
			before := n.remaining("per-client", c.client)
			require.Equal(t, 200, n.get("/", headers...).status)
			require.Equal(t, before-1, n.remaining("per-client", c.client), "%s was not counted", c.client)
		})
	}
}

func TestIPv6CountsByNetwork(t *testing.T) {
	n := start(t, setup{rules: oneRule, config: trusting("127.0.0.1")})
	for i := range 3 {
		require.Equal(t, 200, n.get("/", fmt.Sprintf("X-Forwarded-For: 2001:db8:1:2:%x::1", i+1)).status)
	}
	require.Equal(t, 429, n.get("/", "X-Forwarded-For: 2001:db8:1:2:ffff:ffff:ffff:ffff").status, "the same /64")
	require.Equal(t, 200, n.get("/", "X-Forwarded-For: 2001:db8:1:3::1").status, "the next /64")
	require.Equal(t, "weir:{2001:db8:1:2::/64}:per-client:rr", n.explained("per-client", "2001:db8:1:2::9", "").Key)
}

func TestStatedCost(t *testing.T) {
	const doc = "rules: [{id: weighed, key: [client_ip], limit: 1000, window: 1h, cost: 'header:X-Cost'}]"
	charge := func(n *node, headers ...string) int64 {
		t.Helper()
		before := n.remaining("weighed", "127.0.0.1")
		require.Equal(t, 200, n.get("/", headers...).status)
		return before - n.remaining("weighed", "127.0.0.1")
	}
	t.Run("an untrusted client cannot state it", func(t *testing.T) {
		n := start(t, setup{rules: doc})
		for _, cost := range []string{"0", "-5", "1000", "0.001"} {
			require.EqualValues(t, 1, charge(n, "X-Cost: "+cost), cost)
		}
	})
	t.Run("a trusted proxy can", func(t *testing.T) {
		n := start(t, setup{rules: doc, config: trusting("127.0.0.1")})
		require.EqualValues(t, 7, charge(n, "X-Cost: 7"))
		for _, odd := range []string{"0", "-5", "7x", "", "１"} {
			require.EqualValues(t, 1, charge(n, "X-Cost: "+odd), odd)
		}
		require.EqualValues(t, 400, n.get("/", "X-Cost: 1", "X-Cost: 2").status)
	})
}

func TestTierOnlyFromTrustedProxies(t *testing.T) {
	const doc = "rules: [{id: per-client, key: [client_ip], limit: 10, window: 1h, tiers: {pro: 1000, staff: unlimited}}]"
	tiers := func(c *config.Config) { c.TierHeader = "X-Tier" }
	untrusted := start(t, setup{rules: doc, config: tiers})
	for _, h := range []string{"X-Tier: pro", "X-Tier: staff"} {
		require.Equal(t, `"per-client";q=10;w=3600`, untrusted.get("/", h).header.Get("RateLimit-Policy"), h)
	}
	trusted := start(t, setup{rules: doc, config: func(c *config.Config) { tiers(c); c.TrustedProxies = []string{"127.0.0.1"} }})
	require.Equal(t, `"per-client";q=1000;w=3600`, trusted.get("/", "X-Tier: pro").header.Get("RateLimit-Policy"))
	require.Empty(t, trusted.get("/", "X-Tier: staff").header.Get("RateLimit-Policy"))
	require.Equal(t, `"per-client";q=10;w=3600`, trusted.get("/", "X-Tier: nobody").header.Get("RateLimit-Policy"))
	// A proxy that adds its line alongside the client's proves nothing.
	require.Equal(t, `"per-client";q=10;w=3600`, trusted.get("/", "X-Tier: staff", "X-Tier: pro").header.Get("RateLimit-Policy"))
}

func TestWhatTheOriginLearnsOfTheClient(t *testing.T) {
	seen := make(chan http.Header, 1)
	origin := func(_ http.ResponseWriter, r *http.Request) { seen <- r.Header }
	untrusted := start(t, setup{origin: origin})
	untrusted.get("/", "X-Forwarded-For: 203.0.113.1", "X-Real-Ip: 203.0.113.1")
	h := <-seen
	require.Equal(t, []string{"127.0.0.1"}, h["X-Forwarded-For"])
	require.Empty(t, h["X-Real-Ip"])

	trusted := start(t, setup{origin: origin, config: trusting("127.0.0.1")})
	trusted.get("/", "X-Forwarded-For: 203.0.113.1")
	require.Equal(t, []string{"203.0.113.1, 127.0.0.1"}, (<-seen)["X-Forwarded-For"])
}
