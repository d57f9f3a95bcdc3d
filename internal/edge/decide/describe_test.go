package decide

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A limit's policy is made once; a client that gets less of it sees that.
func TestPolicyStatesTheQuota(t *testing.T) {
	d, _ := decider(t, `rules:
- {id: per-client, key: [client_ip], limit: 100, window: 1500ms}
- {id: running, key: [client_ip], algorithm: concurrency, limit: 9, window: 1m}
`, calm)
	r := &Request{}
	d.ask(t, r, "192.0.2.1", []byte("/api/items"), nil)
	require.Equal(t, Pass, d.Decide(r))
	defer r.Permit.Done()
	f := func(want string, factor float64) {
		t.Helper()
		r.BehaviorResult.factor = factor
		var policy string
		r.SetLimitHeaders(false, func(name, value []byte) {
			if string(name) == string(headerPolicy) {
				policy = string(value)
			}
		})
		require.Equal(t, want, policy)
	}
	const full = `"per-client";q=100;w=2, "running";q=9;qu="concurrent-requests"`
	f(full, 0)
	f(`"per-client";q=50;w=2, "running";q=9;qu="concurrent-requests"`, 0.5)
	f(full, 0)
}

const threeRules = `rules:
- {id: per-client, key: [client_ip], algorithm: sliding_window, limit: 1000000000, window: 1h}
- {id: per-path, key: [path], algorithm: sliding_window, limit: 1000000000, window: 10s}
- {id: all, key: [], algorithm: token_bucket, limit: 100000, burst: 1000, window: 1s}
`

// BenchmarkDescribe measures the fields of one rule and of three. A tier's factor makes a policy
// that has to be written anew.
func BenchmarkDescribe(b *testing.B) {
	for _, c := range []struct {
		name   string
		factor float64
		rules  string
	}{
		{"one", 0, "rules: [{id: per-client, key: [client_ip], algorithm: sliding_window, limit: 1000000000, window: 1h}]"},
		{"three", 0, threeRules},
		{"three, tightened", 0.5, threeRules},
	} {
		b.Run(c.name, func(b *testing.B) {
			d, _ := decider(b, c.rules, calm)
			r := &Request{}
			d.ask(b, r, "192.0.2.1", []byte("/api/items"), nil)
			require.Equal(b, Pass, d.Decide(r))
			defer r.Permit.Done()
			r.BehaviorResult.factor = c.factor
			b.ReportAllocs()
			for b.Loop() {
				r.SetLimitHeaders(false, func(_, _ []byte) {})
			}
		})
	}
}
