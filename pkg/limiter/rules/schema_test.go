package rules

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestNeeds(t *testing.T) {
	f := func(rule string, schema int, what string) {
		t.Helper()
		_, d, err := LoadDocument([]byte("rules: [{id: plain, key: [client_ip, path], limit: 5, window: 1s}, {id: a, limit: 5, window: 10s, " + rule + "}]"))
		require.NoError(t, err)
		got, why := Needs(d.Rules)
		require.Equal(t, schema, got)
		require.Equal(t, what, why)
	}
	f("key: []", 1, "")
	f("key: [client_ip, 'header:client_net'], match: {paths: [/a]}", 1, "")
	f("key: [client_ip], match: {not: {paths: [/a]}}", 2, "rules[1].match.not")
	f("key: [client_ip], mode: off, match: {paths: [/a], not: {methods: [GET]}}", 2, "rules[1].match.not")
	f("key: [client_net], consistency: leased", 5, "rules[1].consistency")
	f("key: [path], consistency: strict", 5, "rules[1].consistency")
	f("key: [client_net], algorithm: fixed_window, consistency: reported", 6, "rules[1].consistency: reported")
	f("key: [path, client_net]", 2, "rules[1].key: client_net")
	f("key: [client_net/20/40]", 2, "rules[1].key: client_net/20/40")
	f("key: [client_ip], storage: large_ring", 4, "rules[1].storage: large_ring")
	f("key: [client_net], storage: large_ring", 4, "rules[1].storage: large_ring")
	f("key: [client_ip/56]", 2, "rules[1].key: client_ip/56")
	f("key: [descriptor], consistency: reported, algorithm: fixed_window, domain: a, descriptors: [{key: b}]", 7, "rules[1].descriptors")
	f("key: [client_ip, risk]", 9, "rules[1].key: risk")
	f("key: [client_net], tiers: {pro: 7, 'risk:blocked': 1, 'risk:bad': unlimited}", 9, "rules[1].tiers.risk:bad")
	f("key: [client_ip], algorithm: token_bucket, scope: global", 8, "rules[1].scope")
	f("key: [risk], algorithm: fixed_window, scope: global, global: {mode: escrow}, on_store_failure: closed", 10, "rules[1].global.mode: escrow")
	f("key: [client_ip], scope: region", 8, "rules[1].scope")
	f("key: [client_ip, risk], under_load: {from: 0.5, share: 0.2}", 11, "rules[1].under_load")
	f("key: [client_ip, risk], under_load: {from: 0.5, share: 0.2}, experiment: {share: 0.1, limit: 7}", 12, "rules[1].experiment")
	f("key: [client_ip], algorithm: fixed_window, consistency: leased, scope: global, global: {mode: escrow}, on_store_failure: closed", 14, "rules[1].consistency: leased with global.mode: escrow")
	f("key: [client_ip/64]", 2, "rules[1].key: client_ip/64") // means client_ip, but schema 1 lacks the word
}
