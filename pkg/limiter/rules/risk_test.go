package rules

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
)

// The behavior policy's tier precedes the client's own. Without a policy every client is
// normal.
func TestRisk(t *testing.T) {
	set, err := Load([]byte(`
rules:
  - id: a
    key: [client_ip]
    limit: 100
    window: 1m
    tiers: {pro: 1000, risk:suspicious: 10, risk:known: unlimited}
  - {id: b, key: [client_ip, risk], limit: 5, window: 1m}
  - {id: c, key: [risk], limit: 7, window: 1m}
`))
	require.NoError(t, err)
	f := func(tier, risk string, limits []int64, keys ...string) {
		t.Helper()
		var m Match
		require.NoError(t, set.Match(&fake{client: netip.MustParseAddr("192.0.2.1"), path: "/", method: "GET", tier: tier, risk: risk}, 0, &m))
		var got []int64
		var written []string
		for _, c := range m.Checks {
			got = append(got, c.Limit.Limit)
			written = append(written, string(c.Key))
		}
		require.Equal(t, limits, got)
		require.Equal(t, keys, written)
	}
	f("", "", []int64{100, 5, 7}, "weir:{192.0.2.1}:a:rr", "weir:{192.0.2.1}:b:rr:normal", "weir:{normal}:c:rr")
	f("pro", "", []int64{1000, 5, 7}, "weir:{192.0.2.1}:a:rr", "weir:{192.0.2.1}:b:rr:normal", "weir:{normal}:c:rr")
	f("pro", "suspicious", []int64{10, 5, 7}, "weir:{192.0.2.1}:a:rr", "weir:{192.0.2.1}:b:rr:suspicious", "weir:{suspicious}:c:rr")
	f("pro", "elevated", []int64{1000, 5, 7}, "weir:{192.0.2.1}:a:rr", "weir:{192.0.2.1}:b:rr:elevated", "weir:{elevated}:c:rr")
	f("", "known", []int64{5, 7}, "weir:{192.0.2.1}:b:rr:known", "weir:{known}:c:rr")
	_, err = ParseKey([]string{"risk"})
	require.ErrorContains(t, err, "only rules count risk tiers; remove it")
}
